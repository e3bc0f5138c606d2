"""The log of calls: what reached the provider, what it did, and what it answered.

A line is in the file, past the reach of any `kill -9`, before the answer leaves. One line is one
call. `effect_id` is the effect that the call caused. `duplicate_of` is the first effect under its
key: with an `effect_id` beside it the effect took place twice; without, the first answer was sent again.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One call. `at` and `monotonic` tell when it arrived; `number` tells its place in the log.

    `status` is None when no answer was sent, `body_hash` (SHA-256) when the body was left unread.
    """

    number: int
    at: datetime
    monotonic: float
    route: str
    key: str | None
    body_hash: str | None
    fault: str | None
    status: int | None
    effect_id: str | None
    duplicate_of: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it stands in the file."""
        return {name: getattr(self, name) for name in self.__slots__} | {"at": self.at.isoformat()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Entry":
        """Build an entry from a line of the file, or from the control plane's answer."""
        return cls(**{**value, "at": datetime.fromisoformat(value["at"])})


@dataclass(frozen=True, slots=True)
class Counts:
    """A log in numbers. `duplicate_effects` are those beyond the first under one key."""

    calls: int
    effects: int
    distinct_keys: int
    duplicate_effects: int
    replayed_answers: int
    by_fault: Mapping[str, int]
    by_route: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the counts as the control plane answers them."""
        return asdict(self)


def count(entries: Iterable[Entry]) -> Counts:
    """Count a log, be it in memory or read from a file."""
    kept = list(entries)
    return Counts(
        calls=len(kept),
        effects=sum(entry.effect_id is not None for entry in kept),
        distinct_keys=len({entry.key for entry in kept if entry.key is not None}),
        duplicate_effects=sum(bool(entry.effect_id and entry.duplicate_of) for entry in kept),
        replayed_answers=sum(bool(entry.duplicate_of and not entry.effect_id) for entry in kept),
        by_fault=dict(Counter(entry.fault for entry in kept if entry.fault is not None)),
        by_route=dict(Counter(entry.route for entry in kept)),
    )


def read_log(path: str | os.PathLike[str]) -> list[Entry]:
    """Read a log file, also while a simulator writes it; a line without its end is left out."""
    lines = Path(path).read_bytes().split(b"\n")[:-1]
    return [Entry.from_json(json.loads(line)) for line in lines]


class CallLog:
    """The log of a running simulator, in memory and, given a path, in a file.

    A file that exists is continued: its calls count, and new numbers follow its last one.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.entries: list[Entry] = []
        self._waiting: list[tuple[Callable[[Entry], bool], asyncio.Future[Entry]]] = []
        self._file: int | None = None
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self.entries = read_log(path)

    @property
    def next_number(self) -> int:
        """The number of the next entry."""
        return self.entries[-1].number + 1 if self.entries else 1

    def append(self, entry: Entry) -> None:
        """Enter a call. When this returns, the line is in the file."""
        if self._file is not None:
            line = json.dumps(entry.to_json()).encode() + b"\n"
            while line:
                line = line[os.write(self._file, line) :]
        self.entries.append(entry)
        if self._waiting:
            self._tell(entry)

    async def wait_for(self, wanted: Callable[[Entry], bool], *, timeout: timedelta) -> Entry:
        """Return the first entry that is *wanted*, past or to come. Raises `TimeoutError`."""
        for entry in self.entries:
            if wanted(entry):
                return entry
        promise: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        waiting = (wanted, promise)
        self._waiting.append(waiting)
        try:
            return await asyncio.wait_for(promise, timeout.total_seconds())
        finally:
            self._waiting.remove(waiting)

    def clear(self) -> None:
        """Forget every call, in the file too."""
        self.entries.clear()
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Close the file; what was logged can still be read."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _tell(self, entry: Entry) -> None:
        for wanted, promise in self._waiting:
            if not promise.done() and wanted(entry):
                promise.set_result(entry)
