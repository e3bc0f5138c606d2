"""Leases of the jobs that a worker holds: extended, and given up when a job is to stop."""
