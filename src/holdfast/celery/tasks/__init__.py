"""Tasks of a team as durable jobs: how they are called, retried, scheduled and answered."""
