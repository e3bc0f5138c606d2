"""Hints over NOTIFY: sent sparingly, and without a guarantee of delivery.

A process that begins to listen notifies the others, so that each knows roughly how many there are: by that
number, idle workers spread their polls. It is counted again at every heartbeat.

A commit with NOTIFY takes a lock on the whole database, so a process sends at most one hint per
queue every few milliseconds. A lost hint costs one poll.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import asyncpg

from holdfast.core.errors import StoreUnavailable
from holdfast.ports import Hint, HintKind
from holdfast.stores.postgres.connections import Connections, translated
from holdfast.stores.postgres.namespace import Namespace
from holdfast.stores.subscriptions import Subscriptions

CHANNEL = Namespace().channel
LISTENING = "listening"
_COUNT = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
QUIET = 0.005
LATE = 0.002
RECONNECT = 1.0
HEARTBEAT = 30.0
_KINDS = frozenset(kind.value for kind in HintKind)


class Sender:
    """Decides which submissions carry a hint, and sends a hint that no submission carried."""

    def __init__(self, send: Callable[[list[str]], Awaitable[Any]]) -> None:
        self._send = send
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._quiet: set[str] = set()
        self._held_back: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        """The number of queues whose quiet time runs, or for which a hint is due."""
        return len(self._timers)

    def due(self, queues: Iterable[str]) -> list[str]:
        """Return the queues to send a hint for now; for the others the quiet time has to pass first."""
        named = set(queues)
        now = [queue for queue in named if queue not in self._quiet]
        self._held_back.update(named.intersection(self._quiet))
        for queue in now:
            self._start_quiet_time(queue)
        return now

    def _start_quiet_time(self, queue: str) -> None:
        self._held_back.discard(queue)
        self._quiet.add(queue)
        self._set_timer(queue, QUIET, self._end_quiet_time)

    def _end_quiet_time(self, queue: str) -> None:
        """Wait a moment for the next submission to carry a hint that is due: it costs nothing there."""
        self._quiet.discard(queue)
        del self._timers[queue]
        if queue in self._held_back:
            self._set_timer(queue, LATE, self._send_late)

    def _send_late(self, queue: str) -> None:
        self._start_quiet_time(queue)
        self.send(f"ready:{queue}")

    def send(self, payload: str) -> None:
        """Send a separate notification in the background."""
        task = asyncio.create_task(self._hint(payload), name=f"holdfast hint {payload!r}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_timer(self, queue: str, seconds: float, then: Callable[[str], None]) -> None:
        before = self._timers.get(queue)
        if before is not None:
            before.cancel()
        self._timers[queue] = asyncio.get_running_loop().call_later(seconds, then, queue)

    async def _hint(self, payload: str) -> None:
        try:
            await self._send([payload])
        except StoreUnavailable:
            return  # a lost hint costs a poll, nothing else

    async def close(self) -> None:
        """Drop the hints that are due; workers find those jobs by polling."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._quiet.clear()
        self._held_back.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)


class Listener:
    """Receives hints on a connection of its own, and reconnects after a loss.

    Behind a pooler without a URL to the server itself, no hint arrives: each process finds jobs by polling.
    """

    def __init__(
        self, connections: Connections, *, channel: str = CHANNEL, heartbeat: float = HEARTBEAT
    ) -> None:
        self._connections = connections
        self._channel = channel
        self._name = f"{channel} listener"[:63]
        """The name of the listening connections, by which they are counted: a server keeps 63 characters of it."""
        self._heartbeat = heartbeat
        self.listeners = 1
        """How many processes listen, this one included, as far as it knows."""
        self._subscriptions = Subscriptions()
        self._task: asyncio.Task[None] | None = None

    def add(self, receive: Callable[[Hint], None], kinds: Collection[HintKind]) -> Callable[[], None]:
        """Pass hints of these *kinds* to *receive* until the returned function is called."""
        if self._task is None and self._connections.can_listen:
            self._task = asyncio.create_task(self._run(), name="holdfast listener")
        return self._subscriptions.subscribe(receive, kinds)

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            # The next statement reports that the server is absent; the listener only reconnects.
            with suppress(StoreUnavailable, asyncpg.PostgresError), translated():
                await self._listen_until_lost()
            await asyncio.sleep(RECONNECT)

    async def _listen_until_lost(self) -> None:
        connection = await self._connections.dedicated(self._name)
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            await connection.add_listener(self._channel, self._receive)
            self.listeners = await connection.fetchval(_COUNT, self._name)
            await connection.execute("SELECT pg_notify($1, $2)", self._channel, LISTENING)
            for kind in (HintKind.READY, HintKind.MESSAGE):  # a hint may have been sent meanwhile
                self._subscriptions.notify(Hint(kind, ""))
            while not await _happens(lost, within=self._heartbeat):
                # A dead connection and an idle one look the same until a statement is sent.
                self.listeners = await connection.fetchval(_COUNT, self._name)
        finally:
            connection.terminate()

    def _receive(
        self,
        connection: "asyncpg.Connection[asyncpg.Record] | Any",
        pid: int,
        _channel: str,
        payload: object,
    ) -> None:
        if payload == LISTENING:
            self.listeners += pid != connection.get_server_pid()
            return
        kind, _, subject = str(payload).partition(":")
        if kind == HintKind.TAKEN:
            listeners, by, queue = [*subject.split("\n", 2), "", ""][:3]
            if listeners.isdecimal():  # any session can write to the channel
                self._subscriptions.notify(Hint(HintKind.TAKEN, queue, by, int(listeners)))
        elif kind in _KINDS:
            self._subscriptions.notify(Hint(HintKind(kind), subject))


async def _happens(event: asyncio.Event, *, within: float) -> bool:
    """Wait for *event*, and return whether it was set in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await event.wait()
    return event.is_set()
