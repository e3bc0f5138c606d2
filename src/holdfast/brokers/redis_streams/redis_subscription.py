"""The messages of one stream of Redis, for one consumer of a group."""

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from redis.exceptions import RedisError, ResponseError

from holdfast.brokers.redis_streams.redis_errors import meaning
from holdfast.core.errors import BrokerUnavailable
from holdfast.core.messages.broker_message import JSON, IncomingMessage

if TYPE_CHECKING:
    from redis.asyncio import Redis

T = TypeVar("T")

MAX_IDLE = timedelta(seconds=60)
"""A message that is unacknowledged for this long is delivered to another consumer: its own has died."""

CLAIM_INTERVAL = timedelta(seconds=5)
"""How often a consumer looks for messages of dead consumers."""

LONGEST_WAIT = timedelta(seconds=2)
"""How long one command waits for messages."""


class EntryTag(NamedTuple):
    """The id of an entry in its stream. It is valid for the subscription that received it, and for no later one."""

    subscription: "RedisSubscription"
    entry: bytes


class RedisSubscription:
    """A consumer of a group. Each message goes to one consumer of the group, and again to another if it dies.

    What is not acknowledged when the subscription ends is delivered again after a minute, or at once if it was given
    back with `requeue`.
    """

    def __init__(
        self,
        client: "Redis",
        stream: str,
        *,
        address: str,
        group: str,
        number: int,
        prefetch: int,
        seconds: float,
    ) -> None:
        self._client = client
        self._stream = stream
        self._address = address
        self._group = group
        self._consumer = f"{socket.gethostname()}-{os.getpid()}-{number}"
        self._prefetch = prefetch
        self._seconds = seconds
        self._unsettled: set[bytes] = set()
        self._settled = asyncio.Event()
        self._claim_at = 0.0

    async def start(self) -> None:
        """Create the group, and the stream with it, unless they exist. The group begins with the oldest entry."""
        try:
            await self._run(self._client.xgroup_create(self._stream, self._group, id="0", mkstream=True))
        except _GroupExists:
            return

    async def receive(self, limit: int) -> Sequence[IncomingMessage]:
        while True:
            room = min(limit, self._prefetch - len(self._unsettled))
            if room <= 0:
                self._settled.clear()
                await self._settled.wait()
                continue
            messages = await self._claim(room) or await self._read(room)
            if messages:
                return messages

    async def acknowledge(self, messages: Sequence[IncomingMessage]) -> None:
        entries = self._entries(messages)
        if entries:
            await self._run(self._client.xack(self._stream, self._group, *entries))
            self._forget(entries)

    async def requeue(self, messages: Sequence[IncomingMessage]) -> None:
        entries = self._entries(messages)
        if entries:
            # Redis has no negative acknowledgement: entries that look idle are delivered to the next that claims.
            await self._run(
                self._client.xclaim(
                    self._stream,
                    self._group,
                    self._consumer,
                    min_idle_time=0,
                    message_ids=list(entries),
                    idle=_milliseconds(MAX_IDLE),
                    justid=True,
                )
            )
            self._forget(entries)
            self._claim_at = 0.0

    async def _claim(self, limit: int) -> list[IncomingMessage]:
        """Take over messages whose consumer has died, or which were given back."""
        now = asyncio.get_running_loop().time()
        if now < self._claim_at:
            return []
        claimed: Any = await self._run(
            self._client.xautoclaim(
                self._stream, self._group, self._consumer, _milliseconds(MAX_IDLE), count=limit
            )
        )
        entries = claimed[1]
        if len(entries) < limit:
            self._claim_at = now + CLAIM_INTERVAL.total_seconds()
        return self._received(entries, redelivered=True)

    async def _read(self, limit: int) -> list[IncomingMessage]:
        wait = min(LONGEST_WAIT.total_seconds(), self._seconds / 2)
        answer: Any = await self._run(  # a list of streams, as the client is asked for RESP2
            self._client.xreadgroup(
                self._group, self._consumer, {self._stream: ">"}, count=limit, block=max(1, int(wait * 1000))
            )
        )
        return [message for _, entries in answer for message in self._received(entries, redelivered=False)]

    def _received(
        self, entries: Iterable[tuple[bytes, Mapping[bytes, bytes] | None]], *, redelivered: bool
    ) -> list[IncomingMessage]:
        messages = []
        for entry, fields in entries:
            if fields is None:
                continue  # the entry was removed from the stream
            self._unsettled.add(entry)
            messages.append(
                IncomingMessage(
                    queue=self._stream,
                    body=fields.get(b"body", b""),
                    id=_text(fields.get(b"id")),
                    type=_text(fields.get(b"type")),
                    content_type=_text(fields.get(b"content_type")) or JSON,
                    headers=_headers(fields.get(b"headers")),
                    redelivered=redelivered,
                    tag=EntryTag(self, entry),
                )
            )
        return messages

    def _entries(self, messages: Iterable[IncomingMessage]) -> list[bytes]:
        """Return the entries that are not settled yet."""
        entries = []
        for message in messages:
            tag = message.tag
            if not isinstance(tag, EntryTag) or tag.subscription is not self:
                raise BrokerUnavailable(
                    f"a message of stream {self._stream!r} belongs to a subscription that has ended; "
                    "it is delivered again"
                )
            if tag.entry in self._unsettled:
                entries.append(tag.entry)
        return entries

    def _forget(self, entries: Iterable[bytes]) -> None:
        self._unsettled.difference_update(entries)
        self._settled.set()

    async def _run(self, command: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await command
        except TimeoutError as error:
            raise BrokerUnavailable(
                f"Redis at {self._address} did not answer within {self._seconds:g} s"
            ) from error
        except (RedisError, OSError) as error:
            if isinstance(error, ResponseError) and str(error).startswith("BUSYGROUP"):
                raise _GroupExists from error
            raise meaning(error, address=self._address, stream=self._stream) from error


class _GroupExists(Exception):
    """The consumer group was created before."""


def _milliseconds(length: timedelta) -> int:
    return round(length.total_seconds() * 1000)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _headers(value: bytes | None) -> dict[str, Any]:
    """Read the headers of an entry. What is no JSON object has none: its sender is not to be trusted."""
    try:
        headers = json.loads(value or b"{}")
    except ValueError:
        return {}
    return headers if isinstance(headers, dict) else {}
