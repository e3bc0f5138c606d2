"""Declarations of what receives messages."""
