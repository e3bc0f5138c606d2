"""What engine, stores and face share of asyncio: the batcher of concurrent writes, and helpers for coroutines."""
