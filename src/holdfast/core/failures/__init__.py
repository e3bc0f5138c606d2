"""Failures: what an error means, and when an attempt follows it."""
