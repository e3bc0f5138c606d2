"""The log of calls: what the provider received, did and answered.

One line is one call. It is in the file before the answer is sent, so it survives `kill -9`.
`effect_id` is the effect that the call caused. `duplicate_of` is the first effect under its key:
together with an `effect_id` the effect took place twice; without one, the first answer was sent again.
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
    """One call. `at` and `monotonic` are the time of its arrival; `number` is its position in the log.

    `status` is None if no answer was sent, `body_hash` (SHA-256) is None if the body was not read.
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
        """Return the entry as written to the file."""
        return {name: getattr(self, name) for name in self.__slots__} | {"at": self.at.isoformat()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Entry":
        """Build an entry from a line of the file, or from the control plane's answer."""
        return cls(**{**value, "at": datetime.fromisoformat(value["at"])})


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of a log. `duplicate_effects` are those after the first under one key."""

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
    """Count the calls of a log, in memory or read from a file."""
    calls = list(entries)
    return Counts(
        calls=len(calls),
        effects=sum(entry.effect_id is not None for entry in calls),
        distinct_keys=len({entry.key for entry in calls if entry.key is not None}),
        duplicate_effects=sum(bool(entry.effect_id and entry.duplicate_of) for entry in calls),
        replayed_answers=sum(bool(entry.duplicate_of and not entry.effect_id) for entry in calls),
        by_fault=dict(Counter(entry.fault for entry in calls if entry.fault is not None)),
        by_route=dict(Counter(entry.route for entry in calls)),
    )


def read_log(path: str | os.PathLike[str]) -> list[Entry]:
    """Read a log file, also while a simulator writes to it; an incomplete last line is ignored."""
    lines = Path(path).read_bytes().split(b"\n")[:-1]
    return [Entry.from_json(json.loads(line)) for line in lines]


class CallLog:
    """The log of a running simulator, in memory and, given a path, in a file.

    An existing file is continued: its calls are counted, and numbering continues from its last entry.
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
        """Add a call. When this returns, the line is in the file."""
        if self._file is not None:
            line = json.dumps(entry.to_json()).encode() + b"\n"
            while line:
                line = line[os.write(self._file, line) :]
        self.entries.append(entry)
        for matches, found in self._waiting:
            if not found.done() and matches(entry):
                found.set_result(entry)

    async def wait_for(self, matches: Callable[[Entry], bool], *, timeout: timedelta) -> Entry:
        """Return the first entry that *matches*, already logged or future. Raises `TimeoutError`."""
        for entry in self.entries:
            if matches(entry):
                return entry
        found: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        waiting = (matches, found)
        self._waiting.append(waiting)
        try:
            return await asyncio.wait_for(found, timeout.total_seconds())
        finally:
            self._waiting.remove(waiting)

    def clear(self) -> None:
        """Delete all entries, in memory and in the file."""
        self.entries.clear()
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Close the file; the entries in memory can still be read."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
