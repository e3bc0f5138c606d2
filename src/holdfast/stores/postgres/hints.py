"""Hints over NOTIFY: sent sparingly, heard without promise.

A commit with NOTIFY takes a lock on the whole database, so a process sends at most one hint per
queue every few milliseconds. Whatever gets lost costs one poll.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import StoreUnavailable
from holdfast.ports import Hint, HintKind
from holdfast.stores.postgres.connections import Connections, translated

if TYPE_CHECKING:
    import asyncpg

CHANNEL = "holdfast"
QUIET = 0.005
RECONNECT = 1.0
_KINDS = frozenset(kind.value for kind in HintKind)


class Sender:
    """Decides which submissions carry a hint, and sends the one that a quiet time held back."""

    def __init__(self, send: Callable[[list[str]], Awaitable[Any]]) -> None:
        self._send = send
        self._quiet: dict[str, asyncio.TimerHandle] = {}
        self._held_back: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def due(self, queues: Iterable[str]) -> list[str]:
        """Give the queues to hint at now; the others are hinted at when their quiet time is over."""
        wanted = set(queues)
        now = [queue for queue in wanted if queue not in self._quiet]
        self._held_back.update(wanted.intersection(self._quiet))
        for queue in now:
            self._hush(queue)
        return now

    def _hush(self, queue: str) -> None:
        self._quiet[queue] = asyncio.get_running_loop().call_later(QUIET, self._speak, queue)

    def _speak(self, queue: str) -> None:
        del self._quiet[queue]
        if queue in self._held_back:
            self._held_back.discard(queue)
            self._hush(queue)
            task = asyncio.create_task(self._hint(queue), name=f"holdfast hint {queue}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _hint(self, queue: str) -> None:
        try:
            await self._send([queue])
        except StoreUnavailable:
            return  # a lost hint costs a poll, nothing else

    async def close(self) -> None:
        """Forget what was held back; workers find those jobs by polling."""
        for timer in self._quiet.values():
            timer.cancel()
        self._quiet.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)


class Listener:
    """Hears hints on a connection of its own, and comes back after a lost one."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._ears: list[Callable[[Hint], None]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, hear: Callable[[Hint], None]) -> Callable[[], None]:
        """Pass hints to *hear* until the returned function is called."""
        self._ears.append(hear)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="holdfast listener")
        return lambda: self._ears.remove(hear)

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            # The pool reports an absent server to those who need it; here we only come back.
            with suppress(StoreUnavailable), translated():
                await self._listen_until_lost()
            await asyncio.sleep(RECONNECT)

    async def _listen_until_lost(self) -> None:
        connection = await self._connections.lone()
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            await connection.add_listener(CHANNEL, self._heard)
            self._tell(Hint(HintKind.READY, ""))  # something may have been said while nobody listened
            await lost.wait()
        finally:
            connection.terminate()

    def _heard(
        self,
        _connection: "asyncpg.Connection[asyncpg.Record] | Any",
        _pid: int,
        _channel: str,
        payload: object,
    ) -> None:
        kind, _, subject = str(payload).partition(":")
        if kind in _KINDS:
            self._tell(Hint(HintKind(kind), subject))

    def _tell(self, hint: Hint) -> None:
        for hear in list(self._ears):
            hear(hint)
