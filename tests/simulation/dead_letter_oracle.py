"""The dead letter oracle: it reads letters, plans and tickets after every commit, beside the jobs that they are about.

A letter is there exactly while its job has failed, or is on record for what became of it. What leaves the
tables is in the archive, whole, and comes back as it was.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.dead_letters.letter import GRAPH, LetterState
from holdfast.core.dead_letters.replay_plan import AUTOMATIC, Phase, Plan
from holdfast.core.messages.dead_message import PUBLISH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.simulation.auditor import Row, StageRow
    from tests.simulation.files import Tables
    from tests.simulation.letter_jobs import TicketRecipient
    from tests.simulation.simulated_archive import SimulatedArchive

_LETTERS = """
SELECT job_id, version, state, generation, error_class, fingerprint, coalesce(failure ->> 'retryable', 0), deaths,
       replays, escalated, repeated, plan, corrected
  FROM holdfast_dead_letters
"""
_STEPS = "SELECT job_id, state, actor, meta FROM holdfast_letter_steps ORDER BY job_id, seq"
_PLANS = "SELECT token, version, running, state FROM holdfast_plans"
_FAILED_MESSAGES = "SELECT dead_job_id FROM holdfast_outbox_messages WHERE status = 'failed'"
_TICKETS = "SELECT id, job_id, kind, fingerprint, told_at FROM holdfast_tickets"

_OPEN = {"new", "triaged", "remediated", "validated"}
_ORDER = {Phase.MADE: 0, Phase.CANARY: 1, Phase.PACED: 2, Phase.DONE: 3, Phase.STOPPED: 3}


class LetterRow(NamedTuple):
    """A dead letter as its row stores it."""

    job_id: str
    version: int
    state: str
    generation: int
    error_class: str
    fingerprint: str
    retryable: int
    deaths: int
    replays: int
    escalated: int
    repeated: int
    plan: str | None
    corrected: int


class StepRow(NamedTuple):
    """A step of a letter."""

    state: str
    actor: str
    meta: str


class PlanRow(NamedTuple):
    """A plan as stored."""

    token: str
    version: int
    running: int
    state: str


class TicketRow(NamedTuple):
    """A ticket as stored."""

    id: str
    job_id: str | None
    kind: str
    fingerprint: str | None
    told_at: int | None


class Away(NamedTuple):
    """What was deleted of a job: all of it, or its letter alone."""

    letter: LetterRow
    job: Row | None
    stages: frozenset[StageRow]


class Jobs(NamedTuple):
    """The jobs and stages before a commit, or after it."""

    rows: Mapping[str, Row]
    stages: Mapping[tuple[str, str, str], StageRow]

    def stages_of(self, job_id: str) -> frozenset[StageRow]:
        """All stages of a job."""
        return frozenset(stage for stage in self.stages.values() if stage.job_id == job_id)


class Files(NamedTuple):
    """All that is on record beside the jobs."""

    letters: dict[str, LetterRow]
    steps: dict[str, list[StepRow]]
    plans: dict[str, PlanRow]
    tickets: dict[str, TicketRow]
    of_failed_messages: frozenset[str]
    """The jobs of the letters whose message has failed, and was not repaired."""


class DeadLetterOracle:
    """Compares the files before and after each commit; where letters are not looked after, it only counts them."""

    def __init__(self) -> None:
        self._files = Files({}, {}, {}, {}, frozenset())
        self._replayed: defaultdict[str, list[str]] = defaultdict(list)
        self.away: dict[str, Away] = {}
        """What is in the archive alone."""
        self.restarted: set[str] = set()
        """The jobs that have just been replayed with all of their stages."""
        self.recipient: TicketRecipient | None = None
        self.per_group = False
        """Whether one ticket stands for all of its group."""
        self.simulated_archive: SimulatedArchive | None = None

    def complaints(self, tables: Tables, before: Jobs, after: Jobs) -> Iterator[str]:
        """Check all that has changed."""
        old, self._files = self._files, _read(tables)
        self.restarted.clear()
        yield from self._deletions(old, before, after)
        if self._files.letters is not old.letters:
            for letter in self._files.letters.values():
                yield from self._letter_complaints(old, letter, after)
        if self._files.letters is not old.letters or after.rows is not before.rows:
            yield from self._agree(after)
        if self._files.plans is not old.plans:
            yield from self._plan_complaints(old)
        if self._files.tickets is not old.tickets:
            yield from self._ticket_complaints(old)

    def is_stale(self, token: str) -> bool:
        """Whether a plan has not begun, and some of its letters are not what they were when it was made."""
        row = self._files.plans.get(token)
        if row is None:
            return False
        plan = Plan.load(row.state)
        left = [letter for letter in self._files.letters.values() if letter.plan == token]
        return plan.phase is Phase.MADE and sum(one.state == "validated" for one in left) < plan.letters

    def unsettled(self) -> Iterator[tuple[str, str]]:
        """Name what the dead letter services still have to do, with a description."""
        for plan in self._files.plans.values():
            if plan.running:
                yield f"plan {plan.token}", f"plan {plan.token}: {plan.state}"
        for ticket in self._files.tickets.values():
            if ticket.told_at is None:
                yield f"ticket {ticket.id}", f"no hook has received {ticket}"
        for letter in self._files.letters.values():
            if letter.state == "replaying":
                yield f"replay {letter.job_id} {letter.plan}", f"the replay of {letter}"

    # What left, and what came back.

    def _deletions(self, old: Files, before: Jobs, after: Jobs) -> Iterator[str]:
        for job_id in before.rows.keys() - after.rows.keys():
            if job_id not in old.letters or job_id in self._files.letters:
                yield f"job {job_id} is gone"
        for job_id, letter in old.letters.items():
            if job_id not in self._files.letters:
                gone = before.rows.get(job_id) if job_id not in after.rows else None
                self.away[job_id] = Away(letter, gone, before.stages_of(job_id) if gone else frozenset())
                yield from self._archived(self.away[job_id])

    def _archived(self, away: Away) -> Iterator[str]:
        """Nothing is deleted that is not in the archive as it was, nor what is being replayed."""
        letter = away.letter
        if letter.state == "replaying":
            yield f"the letter of job {letter.job_id} was deleted while it was replayed"
        record = None if self.simulated_archive is None else self.simulated_archive.newest(letter.job_id)
        if record is None:
            yield f"the letter of job {letter.job_id} was deleted, and is not in the archive"
        elif record["letter"]["version"] < letter.version:
            yield f"the letter of job {letter.job_id} was archived as it was before: {letter}"
        elif away.job is not None:
            kept = record.get("job") or {}
            archived = (kept.get("generation"), kept.get("lease_token"), record["private"].get("late_result"))
            was = (away.job.generation, away.job.token, away.job.late_result)
            if archived != was or len(record["private"].get("stages", ())) != len(away.stages):
                yield f"job {letter.job_id} was archived as {archived}, and was {was}"

    def came_back(self, row: Row) -> bool:
        """Whether a job that is new in the tables was in the archive."""
        return row.id in self.away and self.away[row.id].job is not None

    def _came_back_well(self, away: Away, letter: LetterRow, after: Jobs) -> Iterator[str]:
        """A letter comes back as it was, in no plan; its job comes back to the last column."""
        state = "remediated" if away.letter.state == "validated" else away.letter.state
        if letter != away.letter._replace(plan=None, state=state, version=letter.version):
            yield f"a letter came back as another: {away.letter} -> {letter}"
        if letter.version < away.letter.version:
            yield f"a letter came back with an earlier version: {away.letter} -> {letter}"
        if away.job is not None:
            row = after.rows.get(letter.job_id)
            if row != away.job:
                yield f"job {letter.job_id} came back as another: {away.job} -> {row}"
            if after.stages_of(letter.job_id) != away.stages:
                yield f"job {letter.job_id} came back with other stages than {away.stages}"

    # Steps.

    def _letter_complaints(self, old: Files, letter: LetterRow, after: Jobs) -> Iterator[str]:
        job_id = letter.job_id
        was, away = old.letters.get(job_id), self.away.get(job_id)
        if was is None and away is not None:
            del self.away[job_id]
            if letter.generation == away.letter.generation:
                yield from self._came_back_well(away, letter, after)
                return
        row = after.rows.get(job_id)
        late = row is not None and row.late_result is not None
        if letter == was or (was is not None and late and letter == was._replace(version=was.version + 1)):
            return  # with a late result the job is another one, and its letter as well
        known = old.steps.get(job_id, []) if was is not None else []
        taken = self._files.steps.get(job_id, [])[len(known) :]
        if was is not None and was.state == "closed" and row is not None and row.name == PUBLISH:
            # Its message was repaired in the outbox, and the job stayed failed: its owner may retry it all the same.
            taken = [step for step in taken if (step.state, step.actor) != ("closed", "owner")]
            if not taken:
                return
        for text in self._step_complaints(was, letter, taken, most=len(taken) + late):
            yield f"{text}: {was} -> {letter} by {taken}"
        for step in taken:
            if step.state == "replaying":
                yield from self._replay_complaints(job_id, json.loads(step.meta), after)

    def _step_complaints(
        self, was: LetterRow | None, letter: LetterRow, taken: Sequence[StepRow], *, most: int
    ) -> Iterator[str]:
        path = [*([was.state] if was else []), *(step.state for step in taken)]
        astray = [(one, other) for one, other in pairwise(path) if LetterState(other) not in _graph(one)]
        if astray or not path or path[-1] != letter.state or (was is None and path[0] != "new"):
            yield f"a letter went {path}, and is {letter.state}"
        if was is not None:
            if not taken or not was.version < letter.version <= was.version + most:
                yield "a letter changed without a step, or a step left no trace"
            if letter.generation < was.generation or letter.deaths < was.deaths:
                yield "a letter went back in time"
            automatic = any((step.state, step.actor) == ("replaying", AUTOMATIC) for step in taken)
            if automatic and was.replays:
                yield "a job was replayed automatically a second time"
            if letter.replays != was.replays + sum(step.state == "replaying" for step in taken):
                yield "a letter's replays are miscounted"
        if path[-1] == "new" and len(taken) == 1:
            yield from self._death_complaints(was, letter)

    def _death_complaints(self, was: LetterRow | None, letter: LetterRow) -> Iterator[str]:
        """A job that fails again with the same final failure is escalated; each end has a ticket."""
        replayed = was is not None and was.state == "replaying"
        again = replayed and was is not None and was.error_class == letter.error_class
        escalated = bool(was and was.escalated) or (again and not letter.retryable)
        if bool(letter.escalated) != escalated:
            yield f"a letter is {'' if letter.escalated else 'not '}escalated"
        repeated = replayed and was is not None and was.fingerprint == letter.fingerprint
        if bool(letter.repeated) != repeated:
            yield f"a letter is {'' if letter.repeated else 'not '}repeated"
        kind = "escalated" if letter.escalated else "dead letter"
        if not any(
            ticket.job_id == letter.job_id and ticket.kind == kind for ticket in self._files.tickets.values()
        ):
            yield f"a job has failed without a ticket ({kind})"

    def _replay_complaints(self, job_id: str, meta: dict[str, object], after: Jobs) -> Iterator[str]:
        """In one plan a letter is replayed once, and those behind the canary only when that has completed."""
        token = str(meta["plan"])
        if meta.get("restart"):
            self.restarted.add(job_id)
        gone = self._replayed[token]
        if job_id in gone:
            yield f"job {job_id} was replayed twice in plan {token}"
        gone.append(job_id)
        plan = Plan.load(self._files.plans[token].state)
        ahead = gone[: plan.canary] if plan.canary < plan.letters else []
        if len(gone) > plan.canary and any(_status(one, after) != "completed" for one in ahead):
            yield f"job {job_id} was replayed before the canary of plan {token} had completed: {gone}"

    # What holds at any moment.

    def _agree(self, after: Jobs) -> Iterator[str]:
        """Each failed job has its letter, and each letter agrees with the state of its job."""
        for row in after.rows.values():
            letter = self._files.letters.get(row.id)
            if row.status == "failed" and (letter is None or letter.generation != row.generation):
                yield f"job {row.id} has failed, and there is no letter of it: {row}, {letter}"
        for letter in self._files.letters.values():
            job = after.rows.get(letter.job_id)
            if job is None or not (_agrees(letter, job) or self._was_repaired(letter, job)):
                yield f"a letter disagrees with the state of its job: {letter}, {job}"

    def _was_repaired(self, letter: LetterRow, job: Row) -> bool:
        """Whether a letter is closed because its message was retried in the outbox: its job stays failed."""
        stands = job.name == PUBLISH and job.status == "failed" and job.generation == letter.generation
        return letter.state == "closed" and stands and job.id not in self._files.of_failed_messages

    def _plan_complaints(self, old: Files) -> Iterator[str]:
        for row in self._files.plans.values():
            was = old.plans.get(row.token)
            if was is None or was == row:
                continue
            before, after = Plan.load(was.state), Plan.load(row.state)
            if (
                row.version <= was.version
                or _ORDER[after.phase] < _ORDER[before.phase]
                or not was_open(before)
            ):
                yield f"a plan went back: {was} -> {row}"
            if bool(row.running) != after.is_running:
                yield f"a plan's row and state disagree on whether it is running: {row}"

    def _ticket_complaints(self, old: Files) -> Iterator[str]:
        if self.recipient is None:
            return
        for ticket in old.tickets.values():
            if ticket.id not in self._files.tickets and not self._is_received(ticket, self.recipient):
                yield f"ticket {ticket.id} was deleted, and no hook has received it"
        for ticket in self._files.tickets.values():
            if ticket.told_at is not None and not self._is_received(ticket, self.recipient):
                yield f"ticket {ticket.id} counts as delivered, and no hook has received it"

    def _is_received(self, ticket: TicketRow, recipient: TicketRecipient) -> bool:
        if ticket.id in recipient.received:
            return True
        others = [one.id for one in self._files.tickets.values() if one.fingerprint == ticket.fingerprint]
        return self.per_group and bool(recipient.received & set(others))


def was_open(plan: Plan) -> bool:
    """Whether a plan can still change."""
    return plan.phase not in (Phase.DONE, Phase.STOPPED)


def _read(tables: Tables) -> Files:
    return Files(
        tables.read(_LETTERS, lambda rows: {row[0]: LetterRow._make(row) for row in rows}),
        tables.read(_STEPS, _steps),
        tables.read(_PLANS, lambda rows: {row[0]: PlanRow._make(row) for row in rows}),
        tables.read(_TICKETS, lambda rows: {row[0]: TicketRow._make(row) for row in rows}),
        tables.read(_FAILED_MESSAGES, lambda rows: frozenset(job_id for (job_id,) in rows)),
    )


def _steps(rows: Iterable[tuple[str, str, str, str]]) -> dict[str, list[StepRow]]:
    steps: defaultdict[str, list[StepRow]] = defaultdict(list)
    for job_id, *step in rows:
        steps[job_id].append(StepRow(*step))
    return steps


def _graph(state: str) -> frozenset[LetterState]:
    return GRAPH[LetterState(state)]


def _status(job_id: str, after: Jobs) -> str | None:
    row = after.rows.get(job_id)
    return None if row is None else row.status


def _agrees(letter: LetterRow, job: Row) -> bool:
    if letter.state in _OPEN:
        return job.status == "failed" and job.generation == letter.generation
    match letter.state:
        case "replaying":
            return not job.ended and job.generation == letter.generation + 1
        case "verified":
            return job.status == "completed"
        case "discarded":
            return job.status in ("failed", "cancelled")
        case _:
            return job.status != "failed"
