"""Converts rows to values, and back, for every store."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from holdfast.core.failures.failure import Failure, deadline_passed
from holdfast.core.jobs.job import MOST_SIGNALS, Claim, End, EventKind, Job
from holdfast.core.jobs.stages import StageKey, StageRow, StageStatus
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, Requeue, Transition, has_result
from holdfast.core.providers.holder import Holder
from holdfast.ports.store import Settled

Lease = tuple[str, int]
"""A job's id and its lease token."""


class Row(Protocol):
    """What the drivers' rows have in common."""

    def keys(self) -> Any: ...
    def __getitem__(self, name: str, /) -> Any: ...


def job_from(row: Row) -> Job:
    """Read a job from the columns of `get` and `find`."""
    fields = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a driver's row is no mapping
    fields["status"] = Status(fields["status"])
    fields["cancel_requested"] = bool(fields["cancel_requested"])
    fields["waiting"] = bool(fields["waiting"])
    fields["failure"] = failure_from(fields["failure"])
    if fields["held_by"] is not None:
        fields["held_by"] = Holder.parse(fields["held_by"]).label
    return Job(**fields)


def claims_from(rows: Iterable[Iterable[Any]]) -> list[Claim]:
    """Read claims from the columns of `claim`, which are in the order of the fields."""
    claims = map(Claim._make, rows)
    return [
        claim if claim.held_by is None else claim._replace(held_by=Holder.parse(cast("str", claim.held_by)))
        for claim in claims
    ]


def stage_from(row: Row) -> StageRow:
    """Read a stage from the columns of `stages`."""
    return StageRow(
        job_id=row["job_id"],
        key=StageKey(row["name"], row["call"]),
        status=StageStatus(row["status"]),
        attempt=row["attempt"],
        fingerprint=row["fingerprint"],
        brief_fingerprint=row["brief_fingerprint"],
        result=row["result"],
        failure=failure_from(row["failure"]),
        age=row["age"],
    )


def end_from(row: Row) -> End:
    """Read an end from the columns of `ends`."""
    return End(row["id"], row["name"], Status(row["status"]), row["result"], failure_from(row["failure"]))


def cannot_retry(job: Job, generation: int | None) -> str:
    """Return why a job cannot be retried, of that *generation* if one is given."""
    if job.purged_at is not None:
        return f"job {job.id} was purged and only its end is left; restore it from the archive to retry it"
    if job.status is Status.FAILED and generation not in (None, job.generation):
        return f"job {job.id} has failed in generation {job.generation} and not in {generation}; look at it again"
    return f"job {job.id} is {job.status}; only a failed job can be retried"


def no_signal(job: Job) -> str:
    """Return why a job cannot be sent a signal."""
    if job.status.ended:
        return f"job {job.id} is {job.status}, so no signal reaches it"
    return f"job {job.id} was sent {MOST_SIGNALS:,} signals, which is the most that one job takes"


def failure_from(text: str | None) -> Failure | None:
    """Read a failure as `failure_text` wrote it."""
    return None if text is None else Failure.from_dict(json.loads(text))


def failure_text(failure: Failure | None) -> str | None:
    """Return a failure as JSON, in the spelling that the index of replayable letters expects: `"retryable": true`."""
    return None if failure is None else json.dumps(failure.to_dict())


def requeue_meta(change: Requeue) -> str:
    """Return the data of an event that says why a job was requeued."""
    meta: dict[str, Any] = {}
    if change.failure is not None:
        meta |= change.failure.summary()
    if change.stage is not None:
        meta["stage"] = change.stage
    if change.reason is not None:
        meta["reason"] = change.reason
    if change.held_by is not None and change.held_by.provider is not None:
        # A dead letter counts these, and not the times that its job waited.
        meta["held_by"] = change.held_by.label
    if change.event is EventKind.RETRY and change.delay is not None:
        meta["delay_ms"] = round(change.delay.total_seconds() * 1000)
    return json.dumps(meta)


def signal_meta(name: str, actor: str) -> str:
    """Return the data of an event that says which signal a job was sent, and by whom."""
    return json.dumps({"signal": name, **({"actor": actor} if actor else {})})


TIMEOUT = failure_text(deadline_passed())
"""The stored failure of a job that had not ended at its deadline."""


def settled(
    batch: Sequence[Transition],
    applied: Collection[Lease],
    late: Collection[Lease],
    otherwise: Mapping[Lease, Settled],
) -> list[Settled]:
    """Return the outcome of each change, from the leases that were *applied* or *late*; *otherwise* has the rest."""
    if not late and len(applied) == len(batch):
        return [Settled.WRITTEN] * len(batch)  # nearly every batch
    return [_settled(change, applied, late, otherwise) for change in batch]


def _settled(
    change: Transition,
    applied: Collection[Lease],
    late: Collection[Lease],
    otherwise: Mapping[Lease, Settled],
) -> Settled:
    name = (change.id, change.token)
    if name in late and isinstance(change, Finish):  # a stage in the same batch was written, or it was not
        return Settled.TIMED_OUT if name in applied else Settled.LATE
    if name in applied and not _waits_for_deadline(change):
        return Settled.WRITTEN
    return Settled.FENCED if has_result(change) else otherwise.get(name, Settled.FENCED)


def _waits_for_deadline(change: Transition) -> bool:
    """Whether a change is written late or not at all: a write under its lease was that of a stage in the same batch."""
    return isinstance(change, Finish) and change.if_overdue


def refused(batch: Sequence[Transition], applied: Collection[Lease], late: Collection[Lease]) -> list[Lease]:
    """Return the leases under which something was not written: the caller reads what became of them.

    A result that is not kept is lost, whatever became of its lease: that is always reported.
    """
    if not late and len(applied) == len(batch):
        return []  # nearly every batch
    written = {*applied, *late}
    return [
        (change.id, change.token)
        for change in batch
        if (change.id, change.token) not in (late if _waits_for_deadline(change) else written)
        and not has_result(change)
    ]


def lease_outcomes(rows: Iterable[Any]) -> dict[Lease, Settled]:
    """Read why nothing was written under leases: the deadline ended them, or has not come yet."""
    return {(row[0], row[1]): Settled.OVER if row[2] else Settled.EARLY for row in rows}


def columns(batch: list[Any], *getters: Callable[[Any], Any]) -> list[list[Any] | None]:
    """Turn a batch of values into one list per column, as `unnest` expects them.

    A column without values becomes `None`, which `unnest` fills up: the driver encodes every element
    of a list, and most columns of most batches are empty.
    """
    return [filled([get(item) for item in batch]) for get in getters]


def shared(batch: list[Any], *getters: Callable[[Any], Any]) -> list[list[Any]]:
    """Like `columns`, for values that are never `None`: where all are equal, the list has only the first."""
    return [_shared([get(item) for item in batch]) for get in getters]


def _shared(values: list[Any]) -> list[Any]:
    return values[:1] if values.count(values[0]) == len(values) else values


def unzipped(pairs: Sequence[tuple[str, int]]) -> tuple[list[str], list[int]]:
    """Return a list of ids and one of tokens, or versions, as `unnest` expects them."""
    return [job_id for job_id, _ in pairs], [number for _, number in pairs]


def filled(values: list[Any]) -> list[Any] | None:
    """Return a column, or `None` for one without values."""
    return None if values.count(None) == len(values) else values
