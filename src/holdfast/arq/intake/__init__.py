"""The intake: calls that other programs enqueue in Redis become durable jobs."""
