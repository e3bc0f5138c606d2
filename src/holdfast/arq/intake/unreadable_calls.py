"""Calls whose id or score arq's own code cannot read: it would end the worker, and again each time it is started.

Programs choose ids and scores freely: bytes of a UUID that are no text, or a score without an end.
"""

import math
from collections.abc import Awaitable, Callable

from arq.connections import ArqRedis
from arq.constants import job_key_prefix
from redis.exceptions import ResponseError

Refuse = Callable[[bytes], Awaitable[object]]
"""Stores the body of a call as a dead letter."""

PAGE = 1_000


async def refuse_unreadable(redis: ArqRedis, queue: str, refuse: Refuse) -> int:
    """Make dead letters of the calls in *queue* that arq cannot read, and return how many there were."""
    found = [
        arq_id
        async for arq_id, score in redis.zscan_iter(queue, count=PAGE)
        if not (_is_text(arq_id) and math.isfinite(score))
    ]
    for arq_id in found:
        key = job_key_prefix.encode() + arq_id
        await refuse(await _body(redis, key))
        await redis.zrem(queue, arq_id)
        await redis.delete(key)
    return len(found)


async def _body(redis: ArqRedis, key: bytes) -> bytes:
    try:
        return await redis.get(key) or b""
    except ResponseError:  # it is no text, such as a list
        return b""


def _is_text(arq_id: bytes) -> bool:
    try:
        arq_id.decode()
    except UnicodeDecodeError:
        return False
    return True
