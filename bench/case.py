"""One case to measure, and what its handlers recorded."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """One measurement: made in a process of its own, on a database of its own."""

    measure: str
    engine: str
    jobs: int
    store: str = "postgres"
    size: int | None = None
    """How many at once: slots, batch or length of a list. None leaves the engine's default."""
    variant: str = ""
    """A variant of using the engine, such as its pooled driver. Empty is its default."""
    url: str = ""

    @property
    def setting(self) -> str:
        return f"{self.size or 'default'} {self.variant}".strip()

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What the rounds of one measurement have in common."""
        return self.measure, self.store, self.engine, self.setting

    def at(self, url: str) -> Case:
        return dataclasses.replace(self, url=url)

    def dump(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def load(cls, text: str) -> Case:
        return cls(**json.loads(text))


@dataclass
class Tally:
    """Counts handler calls, from any thread, and remembers when each job was first seen."""

    expected: int
    calls: int = 0
    stage_calls: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reached: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def note(self, number: int) -> None:
        """Count one call of the job's handler."""
        now = time.perf_counter_ns()
        with self._lock:
            self.calls += 1
            self.seen.setdefault(number, now)
            complete = self.calls == self.expected
        if complete:
            self._loop.call_soon_threadsafe(self._reached.set)

    def note_stage(self) -> None:
        with self._lock:
            self.stage_calls += 1

    @property
    def first_at(self) -> float:
        """When the first handler was called, in seconds of `perf_counter`."""
        return min(self.seen.values()) / 1e9

    async def reached(self, *, timeout: float = 150) -> None:
        """Wait until as many calls were made as expected."""
        try:
            async with asyncio.timeout(timeout):
                await self._reached.wait()
        except TimeoutError:
            raise TimeoutError(f"{self.calls} of {self.expected} handler calls after {timeout} s") from None

    def check(self, *, stages: int = 0) -> None:
        """Raise unless every job ran exactly once."""
        if not len(self.seen) == self.calls == self.expected:
            raise RuntimeError(f"{self.expected} jobs, {self.calls} calls, {len(self.seen)} different jobs")
        if self.stage_calls != stages * self.expected:
            raise RuntimeError(f"{self.stage_calls} stage calls instead of {stages * self.expected}")
