"""Tickets: what a person must look at, and at which level."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.core.dead_letters.letter import Letter
from holdfast.core.failures.escalation import (
    DEFAULT_ESCALATIONS,
    LEVELS,
    Escalation,
    EscalationTable,
    level_of,
)


class TicketKind(StrEnum):
    """What a ticket is about."""

    DEAD_LETTER = "dead letter"
    """A job has failed for good."""
    ESCALATED = "escalated"
    """A replay has failed in the same way, and no retry helps."""
    MANY = "many dead letters"
    """More jobs have failed within a day than the limit."""
    ARCHIVE = "archive failed"
    """Dead letters could not be archived. They are kept, and their number grows."""
    ROUTE = "route blocked"
    """A broker refuses all messages of a route. They wait in the outbox."""
    ANNOUNCEMENT = "announcement failed"
    """The end of a job could not be announced: its function raises, or returns what cannot be published."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Something that a person must look at. `id` stays the same however often it is notified."""

    id: str
    kind: TicketKind
    level: Escalation
    title: str
    raised_at: datetime
    job_id: str | None = None
    fingerprint: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the ticket as JSON values."""
        return {
            **self.facts,
            "id": self.id,
            "kind": self.kind.value,
            "level": self.level.value,
            "title": self.title,
            "raised_at": self.raised_at.isoformat(),
            "job_id": self.job_id,
            "fingerprint": self.fingerprint,
        }


def of_letter(
    ticket_id: str, raised_at: datetime, letter: Letter, own: EscalationTable = DEFAULT_ESCALATIONS
) -> Ticket:
    """Return the ticket of a dead letter, with the first reason for which its job failed.

    The level of an escalated letter is `PAGE`. That of another was fixed when the job ended, by the table of its worker;
    otherwise *own* decides.
    """
    kind = TicketKind.ESCALATED if letter.escalated else TicketKind.DEAD_LETTER
    outcome = "failed again in the same way" if letter.escalated else "failed"
    where = f" in stage {letter.stage}" if letter.stage else ""
    own_level = next((word for word in LEVELS if word == letter.level), level_of(letter.error_class, own))
    return Ticket(
        id=ticket_id,
        kind=kind,
        level=Escalation.PAGE if letter.escalated else own_level,
        title=f"job {letter.name} {outcome}{where}: {letter.failure.message}",
        raised_at=raised_at,
        job_id=letter.job_id,
        fingerprint=letter.fingerprint,
        facts={
            "name": letter.name,
            "queue": letter.queue,
            "error_class": letter.error_class.value,
            "code": letter.failure.code.value,
            "stage": letter.stage,
            "first_reason": letter.first_reason,
            "replays": letter.replays,
        },
    )
