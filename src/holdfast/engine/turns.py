"""The calls of this process that wait for their turn under a provider's limits."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable

from holdfast.core.limits import SLACK, Grant, Limits, Wish

WAIT = 1.0
"""Seconds that a job waits in its slot for a limit, before it is held and others have the slot."""


class _Turn:
    """A call that waits; its future says whether it may begin."""

    __slots__ = ("granted", "key", "may_begin")

    def __init__(self, key: str, may_begin: "asyncio.Future[bool]") -> None:
        self.key = key
        self.may_begin = may_begin
        self.granted = False

    def answer(self, allowed: bool) -> None:  # noqa: FBT001 - a timer passes it by its place
        if not self.may_begin.done():
            self.may_begin.set_result(allowed)

    def give_up(self) -> None:
        if not self.granted:
            self.answer(False)  # noqa: FBT003


class Turns:
    """Who waits, by key, and how many calls of each key are under way. Keys take turns."""

    def __init__(self, limits: Limits, key_limits: Limits, *, ask: Callable[[], None]) -> None:
        # A share is a number of calls at a time. With it, and nothing else to count, there is no need to ask for each.
        self._by_share = limits.concurrency is not None and limits.rate is None and not key_limits.any
        self._unlimited = not (limits.any or key_limits.any)
        self._places = 0
        self._places_until = 0.0
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._using: Counter[str] = Counter()
        self._count = 0
        self._most = 0
        """How many calls were under way at a time, since the last wish: as many places will be wanted again."""
        self._waiting: dict[str, deque[_Turn]] = {}
        self.waited: list[float] = []

    @property
    def anybody(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    @property
    def using(self) -> int:
        """How many calls are under way."""
        return self._count

    def lend(self, places: int, seconds: float) -> None:
        """Let so many calls be under way at a time, for a while."""
        self._places, self._places_until = places, self._loop.time() + seconds
        while self._waiting and self._has_place():
            self._grant(next(iter(self._waiting)), 0.0)

    async def enter(self, key: str, *, may_wait: bool) -> bool:
        """Wait for this call's turn; false if that would take too long, or there are others who shall go first."""
        if self._unlimited or (not self._waiting and self._has_place()):
            self._begin(key)
            return True
        if not may_wait:
            return False
        turn = _Turn(key, self._loop.create_future())
        self._waiting.setdefault(key, deque()).append(turn)
        self._ask()
        enough = self._loop.call_later(WAIT, turn.give_up)
        began = self._loop.time()
        try:
            return await turn.may_begin
        except asyncio.CancelledError:
            if turn.granted:
                self.leave(key)
            raise
        finally:
            enough.cancel()
            self._forget(turn)
            self.waited.append(self._loop.time() - began)

    def leave(self, key: str) -> None:
        """Give back the place of a call that has ended."""
        self._count -= 1
        self._using[key] -= 1
        if not self._using[key]:
            del self._using[key]
        if self._waiting and self._has_place():
            self._grant(next(iter(self._waiting)), 0.0)

    def wish(self) -> Wish:
        """Say what is used and what is wanted."""
        most, self._most = self._most, self._count
        self._places = min(self._places, most)  # no more, until it is known what is left of them
        waiting = {key: len(line) for key, line in self._waiting.items()}
        return Wish(Counter(self._using), waiting, most)

    def serve(self, grants: Iterable[Grant], now: float) -> None:
        """Let calls begin at their moments; those that need nothing but a place have begun when it was lent."""
        for key, at in () if self._by_share else grants:
            self._grant(key, at - now)

    def refuse_all(self) -> None:
        """Let nobody wait any longer: no moment is free soon."""
        for line in self._waiting.values():
            for turn in line:
                turn.give_up()

    def _has_place(self) -> bool:
        """Whether one more call may begin without asking anybody."""
        return self._by_share and self._count < self._places and self._loop.time() < self._places_until

    def _begin(self, key: str) -> None:
        self._using[key] += 1
        self._count += 1
        self._most = max(self._most, self._count)

    def _grant(self, key: str, delay: float) -> None:
        """Let the next call of *key* begin after *delay*; then it is the turn of the other keys."""
        line = self._waiting.pop(key, None)
        turn = None if line is None else _first(line)
        if line:
            self._waiting[key] = line
        if turn is None:
            return
        turn.granted = True
        self._begin(key)
        due = self._loop.time() + max(delay, 0.0)
        self._loop.call_at(due, self._start, turn, due)

    def _start(self, turn: _Turn, due: float) -> None:
        """Let a call begin at its moment; one that was slept through is gone, and another has to be asked for.

        Made up for, calls would come all at once that were meant to come one after the other.
        """
        if self._loop.time() <= due + SLACK or turn.may_begin.done():
            turn.answer(True)  # noqa: FBT003
            return
        turn.granted = False
        self._waiting.setdefault(turn.key, deque()).appendleft(turn)
        self.leave(turn.key)
        self._ask()

    def _forget(self, turn: _Turn) -> None:
        line = None if turn.granted else self._waiting.get(turn.key)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[turn.key]


def _first(line: "deque[_Turn]") -> _Turn | None:
    """Take the next call out of a line.

    Whoever has given up, or was stopped, and has not gone yet, would take a place that nobody gives back.
    """
    while line:
        turn = line.popleft()
        if not turn.may_begin.done():
            return turn
    return None
