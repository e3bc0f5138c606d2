"""What becomes of a message that a relay has read."""

import json
from datetime import timedelta

import pytest

from holdfast.core.dead_letters.letter import LetterState, Step
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.messages.broker_message import Route
from holdfast.core.messages.dead_message import PUBLISH
from holdfast.core.messages.outbox import (
    PROBE,
    PROBE_WHEN_FULL,
    RETRIES,
    MessageChange,
    MessageFilter,
    MessageTransition,
    after_refusal,
    held_behind,
    held_for,
    letter_of_retried,
    letter_of_skipped,
    outbox_id,
    outgoing,
    published,
    route_of,
    undeclared,
)
from holdfast.errors import (
    BrokerUnavailable,
    MessageNotFound,
    MessageRefused,
    PayloadInvalid,
    RouteFull,
    RouteRefused,
)
from tests.builders import a_due_message, a_failure

ROUTE = Route("rabbitmq", "vstep.exchange", "grading.request")
FAILURE = a_failure(message="no luck")
ID = a_due_message().id


def refused(error: Exception, *, spent: int = 0, policy: RetryPolicy = RETRIES) -> MessageTransition | None:
    message = a_due_message(retry_count=spent)
    return after_refusal(message, ROUTE, error, FAILURE, dead_id="d", roll=0.5, policy=policy)


@pytest.mark.clause("OUT-4")
def test_a_broker_that_is_unavailable_costs_a_message_nothing() -> None:
    assert refused(BrokerUnavailable("gone"), spent=4) is None


@pytest.mark.clause("OUT-3")
def test_a_refused_route_is_blocked_and_costs_its_message_nothing() -> None:
    change = refused(RouteRefused("no such exchange"), spent=4)

    assert change == MessageTransition(
        ID, 3, MessageChange.BLOCKED, spent=4, delay=PROBE, error="no luck", held_by=str(ROUTE)
    )


@pytest.mark.clause("OUT-3")
def test_a_full_route_is_blocked_and_tried_again_soon() -> None:
    change = refused(RouteFull("a queue is full"), spent=4)

    assert change == MessageTransition(
        ID,
        3,
        MessageChange.BLOCKED,
        spent=4,
        delay=PROBE_WHEN_FULL,
        error="no luck",
        held_by=str(ROUTE),
        full=True,
    )


@pytest.mark.clause("OUT-3")
@pytest.mark.parametrize(("spent", "seconds"), [(0, 2), (1, 4), (2, 8), (3, 16)])
@pytest.mark.parametrize("error", [MessageRefused("too large"), ValueError("a bug")])
def test_any_other_refusal_spends_an_attempt_and_waits_longer_each_time(
    spent: int, seconds: int, error: Exception
) -> None:
    change = refused(error, spent=spent)

    assert change == MessageTransition(
        ID, 3, MessageChange.RETRIED, spent, delay=timedelta(seconds=seconds), error="no luck"
    )


@pytest.mark.clause("OUT-3")
def test_the_last_attempt_fails_and_makes_a_dead_letter() -> None:
    change = refused(MessageRefused("too large"), spent=4)

    assert change is not None
    assert (change.change, change.spent, change.error) == (MessageChange.FAILED, 4, "no luck")
    assert change.dead is not None
    assert (change.dead.id, change.dead.name, json.loads(change.dead.args)) == (
        "d",
        PUBLISH,
        {"outbox_id": ID},
    )
    assert change.dead.failure == FAILURE


def test_a_policy_may_allow_one_attempt_only() -> None:
    once = RetryPolicy(attempts=1, backoff=Backoff.none())

    change = refused(MessageRefused("too large"), policy=once)

    assert change is not None
    assert change.change is MessageChange.FAILED


def test_a_published_message_is_settled_under_its_partition() -> None:
    assert published(a_due_message(retry_count=2)) == MessageTransition(ID, 3, MessageChange.PUBLISHED, 2)


def test_a_message_is_held_by_what_it_waits_for() -> None:
    behind = held_behind(a_due_message(behind="b"))
    blocked = held_for(a_due_message(), ROUTE)

    assert (behind.change, behind.held_by) == (MessageChange.HELD, "message:b")
    assert (blocked.change, blocked.held_by) == (
        MessageChange.HELD,
        "rabbitmq/vstep.exchange/grading.request",
    )


def test_a_message_goes_where_its_type_says_unless_its_row_says_otherwise() -> None:
    assert route_of(a_due_message(), ROUTE) == ROUTE
    assert route_of(a_due_message(exchange="", routing_key="q"), ROUTE) == Route("rabbitmq", "", "q")
    assert str(undeclared("x")) == "undeclared//x"


def test_an_outgoing_message_has_the_identity_that_consumers_know() -> None:
    named = outgoing(a_due_message(message_id="r1", headers='{"tenant": "a"}'), ROUTE)
    unnamed = outgoing(a_due_message(), ROUTE)

    assert (named.id, named.headers, named.body) == ("r1", {"tenant": "a"}, b'{"requestId": "r1"}')
    assert (unnamed.id, unnamed.type, unnamed.route) == (ID, "grading.request", ROUTE)


@pytest.mark.parametrize("headers", ["", "{", "[]", '{"n": 1}', "null"])
def test_headers_that_another_program_wrote_badly_are_the_fault_of_the_message(headers: str) -> None:
    with pytest.raises(MessageRefused, match="headers"):
        outgoing(a_due_message(headers=headers), ROUTE)


def test_messages_of_an_aggregate_are_recognised() -> None:
    assert a_due_message().aggregate == ("Submission", "sub_1")


def test_an_id_of_the_outbox_is_a_uuid() -> None:
    assert outbox_id(ID.upper()) == ID
    with pytest.raises(MessageNotFound, match="'r1'"):
        outbox_id("r1")


def test_the_letter_of_a_message_ends_with_the_reason_of_the_operator() -> None:
    note = {"actor": "ada", "reason": "the limit was raised"}

    assert letter_of_retried(note) == Step(
        LetterState.CLOSED,
        "ada",
        "its message was retried: the limit was raised",
        notes="its message was retried: the limit was raised",
    )
    assert letter_of_skipped(note) == Step(
        LetterState.DISCARDED, "ada", "its message was skipped: the limit was raised"
    )
    assert letter_of_skipped({}) == Step(LetterState.DISCARDED, "holdfast", "its message was skipped")


def test_a_filter_that_shows_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="limit=0"):
        MessageFilter(limit=0)
    with pytest.raises(MessageNotFound, match="is a UUID"):
        MessageFilter(before="r1")
    with pytest.raises(PayloadInvalid, match="NUL"):
        MessageFilter(aggregate_id="a\0")
