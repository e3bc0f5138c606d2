"""Tickets: what they say, and how loudly."""

import json
from datetime import UTC, datetime

import pytest

from holdfast.core.dead_letters.letter import Letter
from holdfast.core.dead_letters.ticket import Ticket, TicketKind, of_letter
from holdfast.core.failures.escalation import LEVELS, Escalation, level_of
from holdfast.core.failures.failure import ErrorClass
from tests.unit.dead_letters import JOB_ID, a_letter

RAISED = datetime(2026, 3, 1, 12, 6, tzinfo=UTC)


def ticket_of(letter: Letter) -> Ticket:
    return of_letter("t-1", RAISED, letter)


@pytest.mark.clause("RET-7")
@pytest.mark.parametrize("level", LEVELS)
def test_a_ticket_is_as_loud_as_the_table_of_its_job_said_when_it_failed(level: Escalation) -> None:
    letter = a_letter(error_class=ErrorClass.BUG, context={"level": level.value})

    assert ticket_of(letter).level is level


@pytest.mark.clause("RET-7")
@pytest.mark.parametrize("kind", ErrorClass)
@pytest.mark.parametrize("context", [{}, {"level": None}, {"level": "backup"}, {"level": "shout"}])
def test_if_its_job_said_nothing_usable_the_default_table_holds(
    kind: ErrorClass, context: dict[str, str | None]
) -> None:
    letter = a_letter(error_class=kind, context=context)

    assert ticket_of(letter).level is level_of(kind)


@pytest.mark.clause("OPS-3")
def test_an_escalated_letter_pages_whatever_the_table_says() -> None:
    letter = a_letter(error_class=ErrorClass.SCHEMA_INVALID, context={"level": "review"}, escalated=True)

    ticket = ticket_of(letter)

    assert (ticket.kind, ticket.level) == (TicketKind.ESCALATED, Escalation.PAGE)
    assert ticket.title == "job grade failed again in the same way: no luck"


def test_a_ticket_names_the_job_the_stage_and_the_failure() -> None:
    assert ticket_of(a_letter()).title == "job grade failed: no luck"
    assert ticket_of(a_letter(stage="llm")).title == "job grade failed in stage llm: no luck"


@pytest.mark.clause("DLQ-4")
def test_a_ticket_goes_out_as_json_with_the_first_reason() -> None:
    ticket = ticket_of(a_letter(stage="llm", replays=1))

    assert json.loads(json.dumps(ticket.to_dict())) == {
        "id": "t-1",
        "kind": "dead letter",
        "level": "review",
        "title": "job grade failed in stage llm: no luck",
        "raised_at": "2026-03-01T12:06:00+00:00",
        "job_id": JOB_ID,
        "fingerprint": "0123456789abcdef",
        "name": "grade",
        "queue": "default",
        "error_class": "UPSTREAM_5XX",
        "code": "GW_5XX",
        "stage": "llm",
        "first_reason": "no answer within 60 s",
        "replays": 1,
    }


def test_a_ticket_need_not_be_about_one_letter() -> None:
    ticket = Ticket(
        "t-2", TicketKind.MANY, Escalation.ALERT, "101 jobs failed", RAISED, facts={"letters": 101}
    )

    assert ticket.to_dict() == {
        "id": "t-2",
        "kind": "many dead letters",
        "level": "alert",
        "title": "101 jobs failed",
        "raised_at": "2026-03-01T12:06:00+00:00",
        "job_id": None,
        "fingerprint": None,
        "letters": 101,
    }
