"""Announcements: that a job has ended or is retried, for messages to other systems.

The store writes an announcement with the transition. A worker that knows the job renders it: the function that the job
declares for the kind returns messages, which are stored in the outbox.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.core.messages.outbox import NewMessage

ALARMING_TRIES = 5
"""An announcement that could not be rendered as often as this raises an alarm; it is tried on."""

LONGEST_PAUSE = timedelta(hours=1)


class AnnouncementKind(StrEnum):
    """What is announced."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    RETRYING = "retrying"
    """An attempt has failed, and another follows."""

    @property
    def bit(self) -> int:
        """The number that stands for it in the column `announces`."""
        return _BITS[self]


_BITS = {kind: 1 << place for place, kind in enumerate(AnnouncementKind)}


def bits_of(kinds: Iterable[AnnouncementKind]) -> int:
    """Return the sum that is stored with a job that announces *kinds*.

    >>> bits_of([AnnouncementKind.COMPLETED, AnnouncementKind.TIMED_OUT])
    9
    """
    return sum(kind.bit for kind in set(kinds))


class AnnouncedFailure(NamedTuple):
    """The public part of a failure: no stack, no context, and a message of one line."""

    error_class: str
    code: str
    message: str
    retryable: bool

    @classmethod
    def load(cls, text: str | None) -> "AnnouncedFailure | None":
        """Read it from a stored failure, or from the data of a retry; `None` if there is none."""
        if text is None:
            return None
        stored = json.loads(text)
        return cls(
            str(stored.get("error_class", "UNKNOWN")),
            str(stored.get("code", "UNKNOWN")),
            str(stored.get("message", "")),
            bool(stored.get("retryable", False)),
        )


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a function that renders messages gets.

    `attempt` is the run of this generation that it is about. `args` are the arguments of the job by name; a completed job
    has a `result`, all others but a cancelled one a `failure`. With `late`, a result came after the deadline. `again`
    counts how often the end was announced before.
    """

    job_id: str
    name: str
    kind: AnnouncementKind
    generation: int
    attempt: int
    at: datetime
    args: Mapping[str, Any]
    result: Any = None
    failure: AnnouncedFailure | None = None
    key: str | None = None
    subject: str | None = None
    version: int | None = None
    late: bool = False
    again: int = 0


Render = Callable[[Announcement], Any]
"""Returns the messages of an announcement: one, a list of them, or `None`."""


class PendingAnnouncement(NamedTuple):
    """An announcement that a worker has taken. *tries* counts how often it was taken, this time included."""

    sequence: int
    job_id: str
    name: str
    kind: AnnouncementKind
    generation: int
    attempt: int
    again: int
    failure: str | None
    at: datetime
    tries: int

    def message_key(self, number: int) -> str:
        """Return the key of its message with that number: of two messages with one key, the first is stored."""
        parts = (self.job_id, self.generation, self.kind.value, self.attempt, self.again, number)
        return ":".join(["announce", *map(str, parts)])

    @property
    def pause(self) -> timedelta:
        """How long to wait after this try has failed."""
        return min(timedelta(seconds=2.0 * 4.0 ** min(self.tries - 1, 8)), LONGEST_PAUSE)

    @property
    def alarming(self) -> bool:
        """Whether a failure of this try raises an alarm."""
        return self.tries >= ALARMING_TRIES


class RenderedAnnouncement(NamedTuple):
    """The messages of an announcement."""

    taken: PendingAnnouncement
    messages: tuple[NewMessage, ...]
