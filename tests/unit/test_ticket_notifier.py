"""A worker remembers which hooks have received a ticket that others have not, for a bounded number of tickets."""

from datetime import UTC, datetime, timedelta

from holdfast.core.dead_letters.ticket import Ticket, TicketKind
from holdfast.core.failures.escalation import Escalation
from holdfast.engine.dead_letters.ticket_notifier import HookDeliveries

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def a_ticket(name: str, *, raised_at: datetime = NOON) -> Ticket:
    return Ticket(name, TicketKind.DEAD_LETTER, Escalation.REVIEW, "job grade failed", raised_at)


def receives(_: Ticket) -> None: ...


def fails(_: Ticket) -> None: ...


def test_it_is_known_which_hook_has_received_a_ticket_and_which_has_not() -> None:
    deliveries = HookDeliveries()

    deliveries.note(receives, a_ticket("a"))

    assert deliveries.has(receives, a_ticket("a"))
    assert not deliveries.has(fails, a_ticket("a"))
    assert not deliveries.has(receives, a_ticket("b"))


def test_a_later_ticket_of_the_same_name_was_received_by_no_hook() -> None:
    deliveries = HookDeliveries()

    deliveries.note(receives, a_ticket("a"))

    assert not deliveries.has(receives, a_ticket("a", raised_at=NOON + timedelta(days=9)))


def test_the_oldest_is_forgotten_when_there_are_too_many() -> None:
    deliveries = HookDeliveries(2)

    for name in ("a", "b", "b", "c"):
        deliveries.note(receives, a_ticket(name))

    assert [deliveries.has(receives, a_ticket(name)) for name in ("a", "b", "c")] == [False, True, True]


def test_what_every_hook_has_received_is_forgotten() -> None:
    deliveries = HookDeliveries()
    deliveries.note(receives, a_ticket("a"))

    deliveries.forget([a_ticket("a"), a_ticket("never received")])

    assert not deliveries.has(receives, a_ticket("a"))
