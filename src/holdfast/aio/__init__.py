"""What the engine and the stores share of asyncio."""
