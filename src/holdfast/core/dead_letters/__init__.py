"""Dead letters: what is kept of a failed job, and the decisions about its repair."""
