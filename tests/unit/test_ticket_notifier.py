"""A worker remembers who has heard a ticket that somebody else has not: of so many tickets, and no more."""

from datetime import UTC, datetime, timedelta

from holdfast.core.dead_letters.ticket import Ticket, TicketKind
from holdfast.core.failures.escalation import Follow
from holdfast.engine.dead_letters.ticket_notifier import HookDeliveries

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def a_ticket(name: str, *, raised_at: datetime = NOON) -> Ticket:
    return Ticket(name, TicketKind.DEAD_LETTER, Follow.REVIEW, "job grade failed", raised_at)


def hears(_: Ticket) -> None: ...


def deaf(_: Ticket) -> None: ...


def test_it_is_known_who_has_heard_a_ticket_and_who_has_not() -> None:
    heard = HookDeliveries()

    heard.note(hears, a_ticket("a"))

    assert heard.has(hears, a_ticket("a"))
    assert not heard.has(deaf, a_ticket("a"))
    assert not heard.has(hears, a_ticket("b"))


def test_a_later_ticket_of_the_same_name_was_heard_by_nobody() -> None:
    heard = HookDeliveries()

    heard.note(hears, a_ticket("a"))

    assert not heard.has(hears, a_ticket("a", raised_at=NOON + timedelta(days=9)))


def test_the_oldest_is_forgotten_when_there_are_too_many() -> None:
    heard = HookDeliveries(2)

    for name in ("a", "b", "b", "c"):
        heard.note(hears, a_ticket(name))

    assert [heard.has(hears, a_ticket(name)) for name in ("a", "b", "c")] == [False, True, True]


def test_what_everybody_has_heard_is_forgotten() -> None:
    heard = HookDeliveries()
    heard.note(hears, a_ticket("a"))

    heard.forget([a_ticket("a"), a_ticket("never heard")])

    assert not heard.has(hears, a_ticket("a"))
