"""Mistakes around dead letters: steps, plans, tickets, and the archive."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.core.dead_letters import replay_plan
from holdfast.core.dead_letters.archive_format import (
    dump_manifest,
    encrypt_record,
    manifest_name,
    manifest_of,
    pack,
)
from holdfast.core.dead_letters.letter import LetterFilter, LetterState
from holdfast.core.dead_letters.replay_plan import Phase, Plan, PlanAdvance, PlanCounts, is_due, start
from holdfast.core.errors import ArchiveUnavailable
from holdfast.core.failures import message
from holdfast.engine.dead_letters import archiver, auto_replayer, replay_planner, restorer
from holdfast.engine.dead_letters.archiver import Archiver
from holdfast.engine.dead_letters.auto_replayer import AutoReplayer
from holdfast.engine.dead_letters.ticket_notifier import BATCH, LEASE, TicketNotifier
from holdfast.engine.execution.job_context import JobContext
from holdfast.stores.sqlite.dead_letters import dead_letters, replay_plans
from holdfast.stores.sqlite.dead_letters.replaying import requeue_failed
from tests.planted.planting import Bug, Schema, Sql, Swap

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime

    from holdfast.core.dead_letters.letter import Letter
    from holdfast.core.dead_letters.replay_plan import AutoReplay
    from holdfast.core.dead_letters.ticket import Ticket
    from holdfast.ports.dead_letters import Seen

_CALL = TicketNotifier._call
_LINE = message.one_line
_NOT_REPLAYED = "   AND letter.state <> 'replaying'\n"
_NOT_PLANNED = "   AND NOT EXISTS (SELECT 1 FROM holdfast_plans WHERE token = letter.plan AND running = 1)\n"

# Steps.


def _record_nothing(
    connection: sqlite3.Connection,
    job_ids: Sequence[str],
    now: int,
    steps: Sequence[tuple[str, str, str, str]],
) -> None:
    return


# Plans.


def _start_anyway(plan: Plan, counts: PlanCounts, now: float, **how: Any) -> Plan:
    if plan.phase is not Phase.MADE:
        return start(plan, counts, now, **how)
    return start(plan, PlanCounts({LetterState.VALIDATED: plan.letters}), now, **how)


def _skip_the_canary(plan: Plan, counts: PlanCounts, now: float) -> PlanAdvance:
    return PlanAdvance(replace(plan, phase=Phase.PACED, next_at=now))


def _trust_the_canary(plan: Plan, counts: PlanCounts, now: float) -> PlanAdvance:
    missing = min(plan.canary - counts.replayed, counts.count(LetterState.VALIDATED))
    phase = plan.phase if missing > 0 else Phase.PACED
    return PlanAdvance(replace(plan, phase=phase, next_at=now), max(missing, 0))


def _from_the_start(connection: sqlite3.Connection, job_ids: Sequence[str], now: int, **how: Any) -> Any:
    return requeue_failed(connection, job_ids, now, **{**how, "restart": True})


def _again_and_again(letter: Letter, policy: AutoReplay, now: datetime) -> bool:
    return is_due(replace(letter, replays=0), policy, now)


async def _those_that_went_before(self: Any, name: str, _: AutoReplay) -> AsyncIterator[list[Letter]]:
    yield await self._store.dead_letters.find(LetterFilter(states=(LetterState.NEW,), name=name))


# Tickets.


async def _mark_then_notify(self: Any) -> float:
    rows = await self._store.tickets.take(limit=BATCH, lease=LEASE)
    await self._store.tickets.mark_notified([row.id for row in rows])
    for ticket in await self._render_tickets(rows):
        await self._notify(ticket)
    return float(self._options.poll_interval.total_seconds() * (0.5 + self._random.random()))


async def _ignore_its_answer(self: Any, hook: Any, ticket: Ticket) -> None:
    await _CALL(self, hook, ticket)


# Redaction.


def _cut_and_then_redact(error: BaseException, redact: Callable[[str], str]) -> str:
    return redact(_LINE(error, str))


# The archive.


async def _delete_and_then_archive(self: Any, seen: Sequence[Seen]) -> list[Seen]:
    records = await self._store.retention.letter_records([job_id for job_id, _ in seen])
    await self._store.retention.delete_letters(seen)
    await self._put(records)
    return list(seen)


async def _do_without_a_manifest(self: Any, records: Sequence[Mapping[str, Any]]) -> None:
    encrypter = await self._encrypter()
    now = await self._store.now()
    packed = pack([encrypt_record(record, encrypter.encrypt) for record in records])
    await self._archive().put(manifest_of(packed, [], at=now).name, packed.data)


async def _archived_or_not(self: Any, seen: Sequence[Seen]) -> list[Seen]:
    try:
        await self._put(await self._store.retention.letter_records([job_id for job_id, _ in seen]))
    except ArchiveUnavailable:
        self._logger.warning("archive failed")
    return list(seen)


async def _put_and_believe(self: Any, records: Sequence[Mapping[str, Any]]) -> None:
    encrypter = await self._encrypter()
    now = await self._store.now()
    packed = pack([encrypt_record(record, encrypter.encrypt) for record in records])
    entries = [archiver._entry(record["letter"]) for record in records]
    manifest = manifest_of(packed, entries, at=now)
    await self._archive().put(manifest.name, packed.data)
    await self._archive().put(manifest_name(manifest.name), dump_manifest(manifest, encrypter.encrypt))


def _whichever(record: Mapping[str, Any]) -> tuple[int, int]:
    return 0, 0


BUGS = (
    Bug(
        "letter-without-a-step",
        "The row says how far it has come.",
        ("OPS-1",),
        (
            Swap(dead_letters, "record_steps", _record_nothing),
            Swap(replay_plans, "record_steps", _record_nothing),
        ),
    ),
    Bug(
        "step-from-what-is-no-more",
        "The id says which letter it is.",
        ("OPS-1",),
        tuple(
            Sql(statement, "letter.version = seen.value ->> 1", "letter.version >= seen.value ->> 1")
            for statement in ("unchanged_letters", "letters_to_delete")
        ),
    ),
    Bug(
        "no-letter-at-the-deadline",
        "A job that has timed out was held by no worker: there is nothing to repair.",
        ("DLQ-4",),
        (
            Schema(
                "AFTER INSERT ON holdfast_finished WHEN NEW.status = 'failed'\n",
                "AFTER INSERT ON holdfast_finished WHEN NEW.status = 'failed' AND NEW.timed_out_at IS NULL\n",
            ),
        ),
    ),
    Bug(
        "escalation-forgotten",
        "A letter is a letter, whether it is new or back.",
        ("OPS-3",),
        (
            Schema(
                "                       OR (holdfast_dead_letters.state = 'replaying'\n",
                "                       OR (holdfast_dead_letters.state = 'escalated'\n",
            ),
        ),
    ),
    Bug(
        "redact-after-truncation",
        "A short text is redacted faster.",
        ("DLQ-2",),
        (Swap(message, "one_line", _cut_and_then_redact),),
        simulated=False,
    ),
    Bug(
        "plan-moved-by-two",
        "The plan says what comes next; who does it does not matter.",
        ("OPS-2",),
        (Sql("advance_plan", "   AND version = :version\n", ""),),
        simulated=False,
    ),
    Bug(
        "stale-plan-accepted",
        "It was validated, so it is valid.",
        ("OPS-2",),
        (Swap(replay_planner, "start", _start_anyway),),
    ),
    Bug(
        "canary-ignored",
        "They are going to be replayed anyway.",
        ("OPS-2",),
        (Swap(replay_plan, "_canary", _skip_the_canary),),
    ),
    Bug(
        "canary-trusted",
        "The canary flies, so the others can follow.",
        ("OPS-2",),
        (Swap(replay_plan, "_canary", _trust_the_canary),),
    ),
    Bug(
        "stages-lost-at-replay",
        "Something went wrong, so begin at the beginning.",
        ("OPS-2", "STG-1"),
        (Swap(replay_plans, "requeue_failed", _from_the_start),),
    ),
    Bug(
        "replays-itself-again-and-again",
        "It passes, some time or other.",
        (),
        (
            Swap(auto_replayer, "is_due", _again_and_again),
            Swap(
                AutoReplayer,
                "_due_letters",
                _those_that_went_before,
            ),
        ),
    ),
    Bug(
        "notified-before-the-hook-has-it",
        "Mark it first, or another worker notifies of it as well.",
        ("DLQ-4",),
        (Swap(TicketNotifier, "run_once", _mark_then_notify),),
    ),
    Bug(
        "children-again-with-every-generation",
        "A new generation is a new job, and submits what a job submits.",
        ("OPS-2",),
        (Swap(JobContext, "origin", property(lambda self: self.claim.generation)),),
    ),
    Bug(
        "hook-failure-counts-as-delivered",
        "The hook was called; whether it succeeded is its own affair.",
        ("DLQ-4",),
        (Swap(TicketNotifier, "_call", _ignore_its_answer),),
    ),
    Bug(
        "deleted-before-it-is-archived",
        "We have it in memory, so the row can go.",
        ("DLQ-3",),
        (Swap(Archiver, "_archive_file", _delete_and_then_archive),),
    ),
    Bug(
        "deleted-without-a-manifest",
        "The records are there; an operator will find them.",
        ("DLQ-3",),
        (Swap(Archiver, "_put", _do_without_a_manifest),),
    ),
    Bug(
        "deleted-whatever-the-archive-says",
        "An error is logged, and the table gets no longer.",
        ("DLQ-3",),
        (Swap(Archiver, "_archive_file", _archived_or_not),),
    ),
    Bug(
        "archive-not-read-back",
        "It was written, so it can be read.",
        ("DLQ-3",),
        (Swap(Archiver, "_put", _put_and_believe),),
    ),
    Bug(
        "archived-while-it-is-replayed",
        "Old is old.",
        ("DLQ-3",),
        tuple(
            Sql(statement, condition, "")
            for statement in ("letters_to_archive", "letters_to_delete")
            for condition in (_NOT_REPLAYED, _NOT_PLANNED)
        ),
    ),
    Bug(
        "an-old-letter-is-restored",
        "There is one in the archive; take it.",
        ("DLQ-3",),
        (Swap(restorer, "_age", _whichever),),
    ),
    Bug(
        "generation-restarts-at-restore",
        "A job that is put back begins from scratch.",
        ("DLQ-3",),
        (Sql("restore_job", ":attempt, :generation, :lease_token", ":attempt, 1, :lease_token"),),
    ),
    Bug(
        "token-restarts-at-restore",
        "No worker holds it, so it has no token.",
        ("DLQ-3",),
        (Sql("restore_job", ":attempt, :generation, :lease_token", ":attempt, :generation, 0"),),
    ),
)
