"""From the claim to the start of an attempt: when to claim, how many jobs, and which of them may start."""
