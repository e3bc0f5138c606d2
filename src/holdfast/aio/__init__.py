"""What engine, stores and app share of asyncio: the batcher of concurrent writes, and helpers for coroutines."""
