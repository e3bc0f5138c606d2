"""A plan: which dead letters are replayed together, how, and how far that has come.

A plan is made by a dry run and known by its token. Once it is started, workers carry it out: a canary is replayed first, and only
when its jobs have completed do the others follow, at a rate. A step is written together with the letters that go
with it, so of two workers that try at the same time, one takes it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.dead_letters.letter import Cause, Letter, LetterState, require_actor
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import PlanStale

GOOD_FOR = 3600.0
"""Seconds after which a plan that was not started is stale: the findings of its dry run may be outdated."""

PACE = 10.0
"""Default number of letters per second that follow the canary."""

BATCH_INTERVAL = 1.0
"""Seconds between two batches of letters."""

MAX_BATCH = 1_000
"""Most letters of one batch, which is one transaction."""


class Phase(StrEnum):
    """How far a plan has come."""

    MADE = "made"
    CANARY = "canary"
    PACED = "paced"
    DONE = "done"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Plan:
    """A replay as planned, and how far it has come. Instants are seconds by the store's clock."""

    token: str
    actor: str
    """The operator that last created, started or stopped it."""
    made_at: float
    letters: int
    restart: bool = False
    """Whether finished stages run again."""
    same_deadline: bool = False
    """Whether the jobs keep their deadline; otherwise they get the same time again."""
    code_version: str = ""
    canary: int = 1
    pace: float = PACE
    sent: int = 0
    """How many letters were replayed as its canary."""
    phase: Phase = Phase.MADE
    next_at: float = 0.0
    why: str = ""
    """Why it was stopped, or is done without some of its letters."""

    def __post_init__(self) -> None:
        if not 0 < self.pace < math.inf:
            raise ValueError(f"pace={self.pace} must be finite and above 0: it counts letters per second")
        if self.canary < 0:
            raise ValueError(f"canary={self.canary} must be 0 or more; with 0, there is no canary")

    def dump(self) -> str:
        """Return it as stored."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, stored: str) -> "Plan":
        """Read what `dump` wrote; a field that a newer version of the library wrote is ignored."""
        values = {name: value for name, value in json.loads(stored).items() if name in cls.__slots__}
        return cls(**values | {"phase": Phase(values["phase"])})

    @property
    def is_running(self) -> bool:
        """Whether workers have something to do for it."""
        return self.phase in (Phase.CANARY, Phase.PACED)


class PlanCounts(NamedTuple):
    """How many letters of a plan are in each state, and how many failed in the same place again.

    A letter with which an operator has taken a step since is not part of the plan any more, unless it was closed.
    """

    states: Mapping[LetterState, int]
    repeated: int = 0

    def count(self, *states: LetterState) -> int:
        """Count the letters in these states."""
        return sum(self.states.get(state, 0) for state in states)

    @property
    def replayed(self) -> int:
        """How many were replayed, with any outcome."""
        return sum(self.states.values()) - self.count(LetterState.VALIDATED)


def start(plan: Plan, counts: PlanCounts, now: float, *, actor: str, code_version: str) -> Plan:
    """Start a plan. Repeated while it runs, it changes nothing.

    Raises `PlanStale`, and `StepRefused` if *actor* is empty.

    A plan with no more letters than its canary has no canary: it keeps its pace from the start.
    """
    actor = require_actor(actor)
    if plan.phase in (Phase.DONE, Phase.STOPPED):
        outcome = "is done" if plan.phase is Phase.DONE else f"was stopped: {plan.why}"
        raise PlanStale(f"plan {plan.token} {outcome}; plan again for what is left")
    if plan.is_running:
        return plan
    if now - plan.made_at > GOOD_FOR:
        raise PlanStale(f"plan {plan.token} was made more than an hour ago; plan again")
    if code_version != plan.code_version:
        raise PlanStale(
            f"plan {plan.token} was made with version {plan.code_version or 'unknown'} of the code, "
            f"and this is {code_version or 'unknown'}; plan again"
        )
    changed = plan.letters - counts.count(LetterState.VALIDATED)
    if changed:
        raise PlanStale(
            f"{changed} of the {plan.letters} letters of plan {plan.token} changed since; plan again"
        )
    phase = Phase.CANARY if 0 < plan.canary < plan.letters else Phase.PACED
    return replace(plan, phase=phase, next_at=now, actor=actor)


class PlanAdvance(NamedTuple):
    """The next state of a plan, and how many letters are to be replayed with it."""

    plan: Plan
    take: int = 0


def next_advance(plan: Plan, counts: PlanCounts, now: float) -> PlanAdvance:
    """Decide what comes next; a plan that has to wait stays as it is."""
    if not plan.is_running:
        return PlanAdvance(plan)
    if plan.phase is Phase.CANARY:
        return _canary(plan, counts, now)
    waiting = counts.count(LetterState.VALIDATED)
    if waiting == 0:
        if counts.count(LetterState.REPLAYING):
            return PlanAdvance(plan)
        gone = plan.letters - sum(counts.states.values())
        why = f"{gone} of its {plan.letters} letters were removed from it by other steps" if gone > 0 else ""
        return PlanAdvance(replace(plan, phase=Phase.DONE, why=why))
    if now < plan.next_at:
        return PlanAdvance(plan)
    take = min(waiting, MAX_BATCH, max(1, round(plan.pace * BATCH_INTERVAL)))
    return PlanAdvance(replace(plan, next_at=now + take / plan.pace), take)


def _canary(plan: Plan, counts: PlanCounts, now: float) -> PlanAdvance:
    """Replay the canary; the others follow when all its jobs have completed, and none otherwise."""
    # Also if an operator has taken it out of the plan meanwhile: no other letter takes its place.
    if plan.sent > counts.count(LetterState.REPLAYING, LetterState.VERIFIED, LetterState.CLOSED):
        outcome = "failed in the same place as before" if counts.repeated else "did not complete"
        return PlanAdvance(replace(plan, phase=Phase.STOPPED, why=f"the canary {outcome}"))
    missing = min(plan.canary - plan.sent, counts.count(LetterState.VALIDATED))
    if missing > 0:
        return PlanAdvance(replace(plan, sent=plan.sent + missing, next_at=now), missing)
    if counts.count(LetterState.REPLAYING):
        return PlanAdvance(plan)
    return PlanAdvance(replace(plan, phase=Phase.PACED, next_at=now))


def stop(plan: Plan, *, actor: str, reason: str = "") -> Plan:
    """Replay no more letters; jobs in flight go on. A plan that has ended stays as it is.

    Raises `StepRefused` if *actor* is empty.
    """
    actor = require_actor(actor)
    if plan.phase in (Phase.DONE, Phase.STOPPED):
        return plan
    why = f"by {actor}: {reason}" if reason else f"by {actor}"
    return replace(plan, phase=Phase.STOPPED, actor=actor, why=why)


class PreflightCheck(NamedTuple):
    """One check of a dry run."""

    what: str
    holds: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a dry run has found about one letter's job."""

    gone: bool = False
    """Whether there is no such job any more."""
    declared: bool = True
    plan: str = ""
    """The token of the plan in which it waits, if that has begun."""
    input_refused: str = ""
    """Why the function would not take the arguments; empty if it does."""
    misfits: Sequence[str] = ()
    """Stored results that do not fit the code any more."""
    finished: Sequence[str] = ()
    """Stages that are kept."""
    unavailable: str = ""
    """Why the provider of the failed stage lets no calls through; empty if it does, or if there is none."""
    code_version: str = ""
    schema: str = ""
    """Why the database's schema does not fit; empty if it does."""


def checks(letter: Letter, facts: Facts, *, restart: bool) -> list[PreflightCheck]:
    """Return the checks of a replay of *letter*, passed or failed."""
    found = [
        _workflow(letter, facts.plan),
        PreflightCheck("schema", not facts.schema, facts.schema or "the schema fits"),
    ]
    if facts.gone:
        detail = "its job is gone, and nothing is left to replay"
        return [*found, PreflightCheck("job", holds=False, detail=detail)]
    if not facts.declared:
        detail = f"no job named {letter.name!r} is declared here; import its module"
        return [*found, PreflightCheck("job", holds=False, detail=detail)]
    available = (
        f"provider {letter.provider!r} lets calls through" if letter.provider else "it called no provider"
    )
    found += [
        PreflightCheck(
            "input", not facts.input_refused, facts.input_refused or "the function takes the arguments"
        ),
        _stages(letter, facts, restart=restart),
        PreflightCheck("provider", not facts.unavailable, facts.unavailable or available),
        _version(letter, facts.code_version),
    ]
    return found


def _workflow(letter: Letter, plan: str) -> PreflightCheck:
    if plan:
        return PreflightCheck(
            "workflow", holds=False, detail=f"it waits in plan {plan}, which has begun; stop that first"
        )
    ready = letter.state in (LetterState.REMEDIATED, LetterState.VALIDATED)
    detail = (
        f"cause {letter.cause}, evidence on record"
        if ready
        else f"it is {letter.state}; cause and evidence come first"
    )
    return PreflightCheck("workflow", ready, detail)


def _stages(letter: Letter, facts: Facts, *, restart: bool) -> PreflightCheck:
    if restart:
        return PreflightCheck("stages", holds=True, detail="all stages run again")
    if facts.misfits:
        return PreflightCheck(
            "stages",
            holds=False,
            detail=f"{'; '.join(facts.misfits)}; replay with restart, or repair the code",
        )
    kept = ", ".join(facts.finished)
    if letter.corrected and kept:
        detail = f"kept: {kept}; one that gets a corrected argument stops the job, and restart runs all again"
        return PreflightCheck("stages", holds=True, detail=detail)
    return PreflightCheck("stages", holds=True, detail=f"kept: {kept}" if kept else "no stage is finished")


def _version(letter: Letter, now: str) -> PreflightCheck:
    """Check that the code has changed since a failure that only a change of the code repairs."""
    before = letter.code_version
    if letter.cause is not Cause.CODE:
        return PreflightCheck("version", holds=True, detail=f"version {now or 'unknown'}")
    if not before or not now:
        return PreflightCheck(
            "version",
            holds=True,
            detail="the code's version is not known; set HOLDFAST_CODE_VERSION to have it compared",
        )
    detail = f"failed with {before}, this is {now}"
    return PreflightCheck(
        "version", before != now, detail if before != now else f"{detail}: deploy the repaired code first"
    )


AUTOMATIC = "automatic replay"
"""The actor of the steps of an automatic replay."""

NOT_LATER = timedelta(days=1)
"""How long after it is due a letter is still replayed automatically: workers may have been down for a while."""


@dataclass(frozen=True, slots=True)
class AutoReplay:
    """Allows a job to be replayed once without an operator, *after* its failure, if that was transient.

    *safe* says why it does no harm if something takes effect twice, since no operator is asked. Raises `ValueError`
    if it is empty, or if *after* is not a duration.
    """

    safe: str
    after: Duration = timedelta(minutes=10)

    def __post_init__(self) -> None:
        if not self.safe.strip():
            raise ValueError("safe is empty; say why it does no harm if something takes effect twice")
        duration(self.after)


def is_due(letter: Letter, policy: AutoReplay, now: datetime) -> bool:
    """Return whether a letter is due for its automatic replay: once per job, and after a transient failure."""
    if letter.state is not LetterState.NEW or letter.replays or not letter.failure.retryable:
        return False
    # Enabling it for a job today does not mean the letters that failed last month.
    age, after = now - letter.last_failure_at, duration(policy.after)
    return after <= age < after + NOT_LATER


def is_in_time(deadline_at: datetime | None, now: datetime) -> bool:
    """Return whether an automatically replayed job has time left: it keeps its deadline."""
    return deadline_at is None or deadline_at > now
