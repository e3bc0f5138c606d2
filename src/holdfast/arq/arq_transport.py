"""The transport to arq workers: it enqueues dispatches in the sorted set that they poll."""

from collections.abc import Sequence
from datetime import timedelta

from arq.connections import ArqRedis, RedisSettings
from arq.utils import timestamp_ms

from holdfast.arq.protocol import DAY_MS, DISPATCH_QUEUE, RUN, dump_call, job_key
from holdfast.arq.redis_client import RedisClient, redis_settings
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.core.names import ensure_name
from holdfast.ports import Ids
from holdfast.ports.fleets import Dispatch
from holdfast.wiring.system import SystemIds

SAFE_POLICY = "noeviction"
"""The setting `maxmemory-policy` with which Redis refuses writes when its memory is full, and drops nothing."""


class ArqTransport:
    """Sends the jobs of a queue to arq workers, for `hold.queue(..., transport=ArqTransport(...))`.

    *redis* is an address, or the `RedisSettings` of the workers. *queue* is the sorted set of Redis that they poll; no
    other calls may be in it, because its workers read JSON only. *slots* is how many jobs all of them together run at a
    time. A dispatch that has not arrived after *resend* is sent again.

    >>> ArqTransport("redis://localhost:6379/0", slots=10).queue
    'holdfast:queue'
    """

    kind = "arq"

    def __init__(
        self, redis: RedisSettings | str, *, queue: str = DISPATCH_QUEUE, slots: int, resend: Duration = "30s"
    ) -> None:
        self.redis_settings = redis_settings(redis)
        self.queue = ensure_name(queue, "queue")
        if type(slots) is not int or slots < 1:
            raise ConfigError(
                f"slots={slots!r} must be the number of jobs that the arq workers run at a time"
            )
        self.slots = slots
        try:
            self.resend = duration(resend)
        except ValueError as error:
            raise ConfigError(f"resend={resend!r}: {error}") from None
        if self.resend < timedelta(seconds=1):
            raise ConfigError(f"resend={resend!r} is too short; a second is the least")

    def open(self) -> "ArqSender":
        """Make a sender, without connecting yet."""
        return ArqSender(RedisClient(self.redis_settings), self.queue, ids=SystemIds())


class ArqSender:
    """Enqueues dispatches. Each has an arq id of its own: arq ignores an id whose earlier call is in progress."""

    def __init__(self, client: RedisClient, queue: str, *, ids: Ids) -> None:
        self._client = client
        self._queue = queue
        self._ids = ids

    async def send(self, queue: str, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        """Enqueue *dispatches*, all or none. Raises `BrokerUnavailable`."""
        now = timestamp_ms()
        bodies = {
            self._ids.job_id(): dump_call(RUN, dispatch.job_id, enqueued_ms=now) for dispatch in dispatches
        }

        async def enqueue(redis: ArqRedis) -> None:
            async with redis.pipeline(transaction=True) as pipeline:
                for arq_id, body in bodies.items():
                    pipeline.psetex(job_key(arq_id), DAY_MS, body)
                # In the order of the dispatches: arq takes ids of one score by their names, which sort by age.
                pipeline.zadd(self._queue, dict.fromkeys(bodies, now))
                await pipeline.execute()

        if bodies:
            await self._client.run(enqueue)
        return [dispatch.job_id for dispatch in dispatches]

    async def check(self) -> str:
        """Connect, and return product, version, and how many dispatches wait. Raises `BrokerUnavailable`."""

        async def ask(redis: ArqRedis) -> str:
            server = await redis.info("server")
            product = str(server.get("server_name", "redis")).capitalize()
            waiting = await redis.zcard(self._queue)
            return f"{product} {server.get('redis_version', '')}, {waiting} dispatches in {self._queue!r}"

        return await self._client.run(ask)

    async def warnings(self) -> Sequence[str]:
        """Return whether the server drops keys when its memory is full. Raises `BrokerUnavailable`."""
        memory = await self._client.run(lambda redis: redis.info("memory"))
        policy = memory.get("maxmemory_policy", SAFE_POLICY)
        if policy == SAFE_POLICY:
            return []
        return [f"maxmemory-policy is {policy}, which drops dispatches: set it to {SAFE_POLICY}"]

    async def close(self) -> None:
        """Disconnect. A later call connects again."""
        await self._client.close()
