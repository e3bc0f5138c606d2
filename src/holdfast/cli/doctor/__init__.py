"""What `holdfast doctor` checks."""
