"""From rows to values, and back: the same for every store."""

import json
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

from holdfast.core.errors import JobNotFound
from holdfast.core.failures import Failure
from holdfast.core.jobs import EventKind, Job
from holdfast.core.stages import StageKey, StageRow, StageStatus
from holdfast.core.states import Status
from holdfast.core.transitions import Requeue


class Row(Protocol):
    """What the drivers' rows have in common."""

    def keys(self) -> Any: ...
    def __getitem__(self, name: str, /) -> Any: ...


def job_from(row: Row) -> Job:
    """Read a job from the columns of `get` and `find`."""
    fields = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a driver's row is no mapping
    fields["status"] = Status(fields["status"])
    fields["cancel_requested"] = bool(fields["cancel_requested"])
    fields["failure"] = failure_from(fields["failure"])
    return Job(**fields)


def known_id(job_id: str) -> str:
    """Give a job's id in the one spelling that is stored. Raises `JobNotFound` if it can be nobody's."""
    try:
        return str(UUID(job_id))
    except ValueError:
        raise JobNotFound(f"there is no job {job_id!r}; a job's id is a UUID") from None


def stage_from(row: Row) -> StageRow:
    """Read a stage from the columns of `stages`."""
    return StageRow(
        job_id=row["job_id"],
        key=StageKey(row["name"], row["call"]),
        status=StageStatus(row["status"]),
        attempt=row["attempt"],
        fingerprint=row["fingerprint"],
        result=row["result"],
        failure=failure_from(row["failure"]),
    )


def failure_from(text: str | None) -> Failure | None:
    """Read a failure as `failure_text` wrote it."""
    return None if text is None else Failure.from_dict(json.loads(text))


def failure_text(failure: Failure | None) -> str | None:
    """Write a failure as JSON."""
    return None if failure is None else json.dumps(failure.to_dict())


def requeue_meta(change: Requeue) -> str:
    """Tell in an event why a job went back to its queue."""
    meta: dict[str, Any] = {}
    if change.failure is not None:
        meta |= change.failure.summary()
    if change.stage is not None:
        meta["stage"] = change.stage
    if change.reason is not None:
        meta["reason"] = change.reason
    if change.event is EventKind.RETRY and change.delay is not None:
        meta["delay_ms"] = round(change.delay.total_seconds() * 1000)
    return json.dumps(meta)


def columns(batch: list[Any], *getters: Callable[[Any], Any]) -> list[list[Any] | None]:
    """Turn a batch of values into one list per column, as `unnest` wants them.

    A column of nothing becomes `None`, which `unnest` fills up: the driver looks at every element
    of a list, and most columns of most batches are empty.
    """
    return [_column([get(item) for item in batch]) for get in getters]


def shared(batch: list[Any], *getters: Callable[[Any], Any]) -> list[list[Any]]:
    """Like `columns`, for values that are never nothing: where all are alike, the first stands for all."""
    return [_shared([get(item) for item in batch]) for get in getters]


def _shared(values: list[Any]) -> list[Any]:
    return values[:1] if values.count(values[0]) == len(values) else values


def _column(values: list[Any]) -> list[Any] | None:
    return None if values.count(None) == len(values) else values
