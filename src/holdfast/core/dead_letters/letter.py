"""A dead letter: the record of a failed job, and the steps by which an operator repairs it.

The store writes it in the transaction that ends the job, for every cause of failure. From then on it moves through the states
of `GRAPH`, one step at a time: each records its actor and its reason, and none is taken twice.

>>> LetterState.REPLAYING in GRAPH[LetterState.VALIDATED], LetterState.REPLAYING in GRAPH[LetterState.NEW]
(True, False)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.core.errors import JobNotFound, LetterNotFound, StepRefused
from holdfast.core.failures.failure import ErrorClass, Failure
from holdfast.core.jobs.job import known_id
from holdfast.core.strict_json import ensure_storable


def letter_id(job_id: str) -> str:
    """Return a job's id in the one spelling that is stored. Raises `LetterNotFound` if it is not an id.

    >>> letter_id("{01900000-0000-7000-8000-00000000000A}")
    '01900000-0000-7000-8000-00000000000a'
    """
    try:
        return known_id(job_id)
    except JobNotFound:
        raise LetterNotFound(f"there is no dead letter of job {job_id!r}; a job's id is a UUID") from None


class LetterState(StrEnum):
    """How far the repair of a failed job has come."""

    NEW = "new"
    TRIAGED = "triaged"
    """An operator has found the cause."""
    REMEDIATED = "remediated"
    """The cause is gone, and there is evidence of it."""
    VALIDATED = "validated"
    """A dry run has shown that the job can go on, and an operator has said why a second effect does no harm."""
    REPLAYING = "replaying"
    VERIFIED = "verified"
    """The job has completed."""
    CLOSED = "closed"
    DISCARDED = "discarded"


_S = LetterState

OPEN = (_S.NEW, _S.TRIAGED, _S.REMEDIATED, _S.VALIDATED)
"""The states in which an operator still has to act."""

# Closed as well, without a step by hand: its owner has retried the job, its late result was accepted, or its message was
# retried.
_GIVEN_UP = frozenset({_S.DISCARDED, _S.CLOSED})

GRAPH: Mapping[LetterState, frozenset[LetterState]] = {
    _S.NEW: frozenset({_S.TRIAGED}) | _GIVEN_UP,
    _S.TRIAGED: frozenset({_S.TRIAGED, _S.REMEDIATED}) | _GIVEN_UP,
    _S.REMEDIATED: frozenset({_S.TRIAGED, _S.REMEDIATED, _S.VALIDATED}) | _GIVEN_UP,
    _S.VALIDATED: frozenset({_S.TRIAGED, _S.REMEDIATED, _S.VALIDATED, _S.REPLAYING}) | _GIVEN_UP,
    # Its job decides: it completed, failed again, or was cancelled.
    _S.REPLAYING: frozenset({_S.VERIFIED, _S.NEW, _S.DISCARDED}),
    _S.VERIFIED: frozenset({_S.CLOSED}),
    # Its job may be retried by its owner all the same, and fail again.
    _S.CLOSED: frozenset({_S.NEW}),
    _S.DISCARDED: frozenset({_S.NEW, _S.CLOSED}),
}
"""Which state may follow which."""

NEXT: Mapping[LetterState, str] = {
    _S.NEW: "triage it first: say what the cause is",
    _S.TRIAGED: "remediate it next: say what shows that the cause is gone",
    _S.REMEDIATED: "plan its replay next",
    _S.VALIDATED: "replay it with the token of its plan, or plan again",
    _S.REPLAYING: "wait until its job has ended",
    _S.VERIFIED: "all that is left is to close it",
    _S.CLOSED: "nothing is left to do",
    _S.DISCARDED: "retry its job if that was a mistake",
}
"""What an operator can do with a letter, by its state."""


class Cause(StrEnum):
    """Why a job failed, as determined by an operator."""

    TRANSIENT = "transient"
    DATA = "data"
    CONFIGURATION = "configuration"
    """Credentials, permissions, addresses, settings."""
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as stored.

    `failure` is the last one: its message and stack are redacted. `version` grows with each change: a step is taken
    from the version that the operator has read. `attempt` is how many attempts the failed stage had.
    """

    job_id: str
    version: int
    state: LetterState
    name: str
    queue: str
    owner: str
    generation: int
    failure: Failure
    attempt: int
    holds: int
    first_reason: str
    first_failure_at: datetime
    last_failure_at: datetime
    updated_at: datetime
    stage: str | None = None
    deaths: int = 1
    replays: int = 0
    escalated: bool = False
    """Whether a replay has failed with the same class, against which no retry helps: that needs an engineer."""
    repeated: bool = False
    """Whether a replay has failed in the same place as before."""
    cause: Cause | None = None
    evidence: str | None = None
    safe: str | None = None
    """Why it does no harm if something takes effect twice, as an operator has confirmed."""
    plan: str | None = None
    notes: str | None = None
    corrected: bool = False
    """Whether its job has other arguments than it was submitted with; the original ones are kept."""

    @property
    def seen(self) -> tuple[str, int]:
        """Its job's id and its version: the letter, and the state of it, that a step applies to."""
        return self.job_id, self.version

    @property
    def error_class(self) -> ErrorClass:
        """The class of the failure."""
        return self.failure.error_class

    @property
    def fingerprint(self) -> str:
        """The group of letters that it belongs to: the same class, in the same place of the code."""
        return self.failure.fingerprint

    @property
    def provider(self) -> str:
        """The provider that the failed stage called; empty if it called none that was declared."""
        return str(self.failure.context.get("provider") or "")

    @property
    def code_version(self) -> str:
        """The version of the application that failed; empty if it is not configured."""
        return str(self.failure.context.get("code_version") or "")

    @property
    def level(self) -> str:
        """The level of its ticket by its job's table; empty if the job was not ended by one of its workers."""
        return str(self.failure.context.get("level") or "")

    @property
    def payload_ref(self) -> str:
        """Where the arguments are: with the job, under its id."""
        return self.job_id

    @property
    def last_stack(self) -> str:
        """The redacted stack of the last failure."""
        return self.failure.stack

    @property
    def sanitized_context(self) -> dict[str, Any]:
        """The context of the failure: allowed fields only."""
        return {
            **self.failure.context,
            "stage": self.stage,
            "attempt": self.attempt,
            "holds": self.holds,
            "replays": self.replays,
            "upstream_status": self.failure.upstream_status,
            "sent": self.failure.sent.value,
            "code": self.failure.code.value,
        }


class LetterStep(NamedTuple):
    """One step of one letter, as it was taken."""

    at: datetime
    state: LetterState
    actor: str
    reason: str
    meta: Mapping[str, Any]


class Group(NamedTuple):
    """All letters with one fingerprint."""

    fingerprint: str
    error_class: str
    place: str
    names: tuple[str, ...]
    letters: int
    open: int
    """How many of them are neither verified nor closed nor discarded."""
    first_seen: datetime
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters to select; they are listed by their jobs' ids, the newest first. `None` means any.

    Without a *limit* a list shows 50, and a step is taken with all of them.
    """

    job_ids: tuple[str, ...] | None = None
    states: tuple[LetterState, ...] | None = None
    name: str | None = None
    queue: str | None = None
    owner: str | None = None
    error_class: str | None = None
    fingerprint: str | None = None
    stage: str | None = None
    plan: str | None = None
    escalated: bool | None = None
    replays: int | None = None
    limit: int | None = None
    before: str | None = None

    @property
    def listed(self) -> int:
        """How many a list shows."""
        return 50 if self.limit is None else self.limit

    def __post_init__(self) -> None:
        if self.states is not None:
            object.__setattr__(self, "states", tuple(map(LetterState, self.states)))
        ensure_storable(
            name=self.name,
            queue=self.queue,
            owner=self.owner,
            error_class=self.error_class,
            fingerprint=self.fingerprint,
            stage=self.stage,
            plan=self.plan,
        )
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit={self.limit} shows nothing; ask for at least one letter")
        if self.before is not None:
            UUID(self.before)  # raises ValueError: a page ends at a job's id


@dataclass(frozen=True, slots=True)
class Step:
    """A step to take with a letter, and what is recorded with it."""

    to: LetterState
    actor: str
    reason: str = ""
    cause: Cause | None = None
    evidence: str | None = None
    safe: str | None = None
    plan: str | None = None
    notes: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ensure_storable(
            actor=self.actor,
            reason=self.reason,
            evidence=self.evidence,
            safe=self.safe,
            plan=self.plan,
            notes=self.notes,
        )

    def recorded(self) -> dict[str, Any]:
        """Return what the letter's history stores of the step, beside its actor and reason."""
        facts = {
            "cause": self.cause,
            "evidence": self.evidence,
            "safe": self.safe,
            "plan": self.plan,
            "notes": self.notes,
        }
        return {**{name: value for name, value in facts.items() if value}, **self.meta}


def triage(cause: Cause, *, actor: str, reason: str = "") -> Step:
    """Record why a job failed."""
    return Step(LetterState.TRIAGED, require_actor(actor), reason, cause=cause)


def remediate(evidence: str, *, actor: str, reason: str = "") -> Step:
    """Record what shows that the cause is gone."""
    return Step(
        LetterState.REMEDIATED, require_actor(actor), reason, evidence=_require_text(evidence, "evidence")
    )


def validate(safe: str, plan: str, *, actor: str) -> Step:
    """Record why a second effect does no harm, under the plan whose dry run succeeded."""
    return Step(LetterState.VALIDATED, require_actor(actor), safe=_require_text(safe, "safe"), plan=plan)


def close(notes: str, *, actor: str) -> Step:
    """Record how it was repaired."""
    return Step(LetterState.CLOSED, require_actor(actor), notes=_require_text(notes, "notes"))


def discard(reason: str, *, actor: str) -> Step:
    """Discard a letter: its job stays failed."""
    return Step(LetterState.DISCARDED, require_actor(actor), _require_text(reason, "reason"))


def refusal(letter: Letter, step: Step) -> str | None:
    """Return why a step does not follow from the letter's state, and what does; `None` if it follows."""
    if step.to in by_hand(letter.state):
        return None
    return f"the dead letter of job {letter.job_id} is {letter.state}, so it cannot be {step.to}; {NEXT[letter.state]}"


def by_hand(state: LetterState) -> frozenset[LetterState]:
    """Return the states to which an operator can take a letter; its job decides the others.

    Only a verified letter can be closed: a job that is given up for good is discarded.
    """
    if state is LetterState.VERIFIED:
        return frozenset({LetterState.CLOSED})
    if state not in OPEN:
        return frozenset()
    return GRAPH[state] - {LetterState.CLOSED, LetterState.REPLAYING}


def mermaid() -> str:
    """Draw the graph as the documentation shows it."""
    lines = ["stateDiagram-v2", "    [*] --> new"]
    for source, targets in GRAPH.items():
        lines += [f"    {source} --> {target}" for target in LetterState if target in targets]
    lines += [f"    {state} --> [*]" for state in (LetterState.CLOSED, LetterState.DISCARDED)]
    return "\n".join(lines)


def require_actor(actor: str) -> str:
    """Return the actor. Raises `StepRefused` if it is empty."""
    if not actor.strip():
        raise StepRefused("actor= must not be empty; it names who takes the step")
    return actor


def _require_text(text: str, what: str) -> str:
    if not text.strip():
        raise StepRefused(f"{what} must not be empty; it is stored with the step")
    return text
