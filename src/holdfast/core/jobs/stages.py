"""A stage of a job: how it is identified, and what the store keeps of it."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.errors import StageMismatch
from holdfast.core.failures.failure import Failure


class StageStatus(StrEnum):
    """What the store knows of a stage."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"


RESTARTED = "@restarted"
"""The name of a row that is no stage: a replay writes it when no earlier stage is kept."""


class StageKey(NamedTuple):
    """A stage within its job: its name, and which call of it this is.

    The call is `#2` for the second one in order, or the key its caller chose.
    """

    name: str
    call: str

    @property
    def is_wait(self) -> bool:
        """Whether the engine wrote it for a wait, or as a marker: it is not one of the job's own stages.

        >>> StageKey("@sleep", "#1").is_wait, StageKey("fetch", "#1").is_wait
        (True, False)
        """
        return self.name.startswith("@")

    def __str__(self) -> str:
        return self.name if self.call == "#1" else f"{self.name}[{self.call}]"


class StageRow(NamedTuple):
    """A stage as stored: done with a result, failed for good, or started with others beside it."""

    job_id: str
    key: StageKey
    status: StageStatus
    attempt: int
    fingerprint: str
    result: str | None = None
    failure: Failure | None = None
    age: float = 0.0
    """Seconds since it was stored, by the store's clock when it was read."""
    brief_fingerprint: str = ""
    """That of the arguments that were not at their default; empty if an earlier version stored the row."""


class CallHash(NamedTuple):
    """What identifies a call of a stage: the hash of all its arguments, and of those not at their default."""

    full: str
    brief: str


def ensure_same(row: StageRow, call: CallHash, earlier: Callable[[], Iterable[str]]) -> None:
    """Raise `StageMismatch` if a row was stored for other arguments.

    A row of an earlier version has the hash of all arguments only. *earlier* gives what that was for the present call
    before some of its parameters existed: any of those that are at their default.
    """
    if row.fingerprint == call.full or row.brief_fingerprint == call.brief:
        return
    if row.brief_fingerprint or row.fingerprint not in earlier():
        raise StageMismatch(
            f"stage {row.key} was stored with other arguments than the code calls it with now; "
            "give the changed stage another name or an explicit key, then retry the job, or replay it with restart"
        )
