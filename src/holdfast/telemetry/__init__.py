"""Logs and figures, for people and machines that watch."""
