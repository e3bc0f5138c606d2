"""Mistakes around deadlines, late results, waits, ticks and pauses."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.jobs.transitions import Finish, time_out
from holdfast.engine.claiming.claimer import Claimer
from holdfast.engine.execution import attempt
from holdfast.engine.worker.maintenance import Maintenance
from holdfast.stores.sqlite import schema
from tests.planted.planting import Bug, Sql, Swap

if TYPE_CHECKING:
    from holdfast.core.jobs.job import Claim

_IS_LATE = "coalesce(job.deadline_at <= :now, false) AND want.value ->> 2 <> 'cancelled' AS late"
_SIGNALLED = "job.signals > want.seen OR "
_UNSEEN = "AND job.signals <= want.seen\n                 "


def _without_notices() -> list[tuple[int, str]]:
    """Return the migrations without the trigger that wakes jobs which wait for others."""
    made = re.compile(r"CREATE TRIGGER holdfast_note_end .*?\nEND;", re.DOTALL)
    assert any(made.search(script) for _, script in schema.MIGRATIONS), "there is no such trigger"
    return [(version, made.sub("", script)) for version, script in schema.MIGRATIONS]


async def _read_pauses_once(self: Any) -> None:
    if self.paused is None:
        self.paused = frozenset(pause.queue for pause in await self._store.queues.paused())
        self._wake_worker()


async def _count_by_the_workers_clock(self: Any, queue: str, room: int) -> list[Claim]:
    ahead = self._runtime.clock.now() - datetime.fromisoformat((await self._store.facts())["now"])
    claims = await self._store.claim(self._worker, queue, limit=room, lease=self._options.lease)
    left = [None if each.time_left is None else each.time_left - ahead.total_seconds() for each in claims]
    return [each._replace(time_left=seconds) for each, seconds in zip(claims, left, strict=True)]


def _end_at_once(claim: Claim) -> Finish:
    return time_out(claim)._replace(if_overdue=False)


BUGS = (
    Bug(
        "retry-moves-the-deadline",
        "Another attempt needs another minute.",
        ("SLA-1",),
        (
            Sql(
                "requeue",
                "SET status = 'queued',",
                "SET status = 'queued', deadline_at = deadline_at + 60000000,",
            ),
        ),
    ),
    Bug(
        "deadline-for-running-jobs-only",
        "What waits in a queue does no harm; the worker that takes it will see.",
        ("SLA-2",),
        (Sql("overdue", "deadline_at <= :now", "deadline_at <= :now AND status = 'processing'"),),
    ),
    Bug(
        "deadline-for-waiting-jobs-only",
        "A worker stops its own jobs in time.",
        ("SLA-2",),
        (Sql("overdue", "deadline_at <= :now", "deadline_at <= :now AND status = 'queued'"),),
    ),
    Bug(
        "timed-out-early",
        "Two seconds are too short for anything, so say now that it has failed.",
        ("SLA-2",),
        (Sql("overdue", "deadline_at <= :now", "deadline_at <= :now + 2000000"),),
    ),
    Bug(
        "workers-clock-ends-it",
        "The worker knows how late it is, so the store need not be asked.",
        ("SLA-2",),
        (Swap(Claimer, "_claim", _count_by_the_workers_clock), Swap(attempt, "time_out", _end_at_once)),
    ),
    Bug(
        "sweep-keeps-the-token",
        "The job has ended, so no worker will ask for its token.",
        (),
        (Sql("expire", "lease_token + (status = 'processing')", "lease_token"),),
    ),
    Bug(
        "late-result-applied",
        "The work is done: what would be gained by calling it failed?",
        ("SLA-3",),
        (Sql("finish_overdue", _IS_LATE, "false AS late"),),
    ),
    Bug(
        "late-result-completes",
        "Keep the late result, and while we are there, mark the job as done.",
        ("SLA-3",),
        (
            Sql(
                "keep_late",
                "SET late_at = :now,",
                "SET status = 'completed', result = :result, late_at = :now,",
            ),
        ),
    ),
    Bug(
        "accepted-twice",
        "To accept a result that was accepted before changes nothing.",
        ("SLA-4",),
        (Sql("accept_late", "   AND status = 'failed'\n", ""),),
    ),
    Bug(
        "ends-told-to-nobody",
        "A job that waits for another polls now and then.",
        (),
        (Swap(schema, "MIGRATIONS", _without_notices()),),
    ),
    Bug(
        "nap-begins-anew",
        "A job that is run again begins at its beginning.",
        (),
        (Sql("stages", "(:now - stored_at) / 1e6", "0.0"),),
    ),
    Bug(
        "signal-wakes-nobody",
        "It is in the table; the job will find it there.",
        (),
        (
            Sql(
                "wake_signalled",
                "retry_after = CASE WHEN NOT waiting THEN retry_after END,\n       waiting = 0,\n       ",
                "",
            ),
        ),
    ),
    Bug(
        "signal-before-the-wait-is-missed",
        "A job that waits is woken by the next signal.",
        (),
        (Sql("requeue", _SIGNALLED, ""), Sql("requeue", _UNSEEN, "")),
    ),
    Bug(
        "tick-for-each-worker",
        "The schedule moves on; who moved it does not matter.",
        (),
        (Sql("advance_schedule", " AND last_at = :old", ""),),
    ),
    Bug(
        "pauses-heard-at-the-start",
        "Ask once which queues are paused; the question costs a query.",
        (),
        (Swap(Maintenance, "_read_paused_queues", _read_pauses_once),),
    ),
)
