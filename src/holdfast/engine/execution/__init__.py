"""One attempt at a job, from the claim to its transition."""
