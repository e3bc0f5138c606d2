"""Place an order: `python place.py 17`. It enqueues the call as ever, whether or not the function is durable."""

import asyncio
import sys

from arq import create_pool
from shop import redis_settings


async def place(order: int) -> None:
    redis = await create_pool(redis_settings)
    await redis.enqueue_job("confirm", order)
    await redis.aclose()


asyncio.run(place(int(sys.argv[1])))
