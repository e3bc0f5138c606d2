"""Relays publish what is in the outbox: in order, in batches, at least once, and nothing is lost or spent by an outage."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Holdfast, Status
from holdfast.core.messages.broker_message import OutgoingMessage
from holdfast.core.messages.outbox import PROBE, PROBE_WHEN_FULL, QUIET, MessageStatus, route_alarm
from holdfast.engine.messages.relays.relay import Relay
from holdfast.engine.store_availability import StoreAvailability
from holdfast.errors import BrokerUnavailable, RouteFull, RouteRefused
from holdfast.operations import LetterFilter, LetterState, Ticket, TicketKind
from holdfast.ports import HintKind
from holdfast.telemetry.metric_registry import MetricRegistry
from tests.contract.conftest import Database, DatabaseClock, FakeClock, Logger
from tests.contract.letters import ALL, notify_tickets, opened, planned, replayed
from tests.contract.relays import (
    ScriptedBroker,
    a_message,
    a_relay,
    added,
    declare,
    relay_all,
    stored,
)
from tests.contract.services import until
from tests.contract.steps import TIMEOUT

LEASE = timedelta(seconds=15)
SELDOM: dict[str, Any] = {"poll": 3_600.0, "lease": timedelta(hours=9)}
"""A relay that does nothing for hours unless it is woken."""


@pytest.fixture
def metrics() -> MetricRegistry:
    return MetricRegistry()


@pytest.fixture
async def hold(database: Database, logger: Logger, metrics: MetricRegistry) -> AsyncIterator[Holdfast]:
    async with opened(database, logger, metrics=metrics) as made:
        yield made


@pytest.fixture
def broker(hold: Holdfast) -> ScriptedBroker:
    """A broker that takes everything, with the message types `graded` and `mailed`."""
    made = ScriptedBroker()
    declare(hold, made, "graded", "mailed")
    return made


def refusing(error: Callable[[], Exception], *ids: str) -> Callable[[OutgoingMessage], Exception | None]:
    """Refuse the messages with these ids; all, without any."""
    return lambda message: error() if not ids or message.id in ids else None


def down() -> Exception:
    return BrokerUnavailable("connection refused")


def no_route() -> Exception:
    return RouteRefused("there is no exchange 'vstep.exchange'")


def full() -> Exception:
    return RouteFull("a queue of its route is full")


def too_large() -> Exception:
    return ValueError("the message is too large")


@asynccontextmanager
async def running(hold: Holdfast, relay: Relay) -> AsyncIterator[None]:
    """Run the loop of a relay while the block runs, then stop it as a worker does."""
    runtime = hold.runtime
    relay.start("test", StoreAvailability("test", runtime.clock, runtime.logger))
    try:
        yield
        async with asyncio.timeout(TIMEOUT):
            await relay.drain()
    finally:
        relay.stop()


async def until_hints_arrive(hold: Holdfast) -> None:
    """Wait until the store passes on hints: the first ones may be lost while it connects."""
    hinted = asyncio.Event()
    unsubscribe = hold.runtime.store.listen(lambda _: hinted.set(), (HintKind.MESSAGE,))

    async def look() -> bool:
        await hold.runtime.store.outbox.retry([], note={})
        return hinted.is_set()

    await until(look)
    unsubscribe()


async def fail_for_good(hold: Holdfast, clock: DatabaseClock, message_id: str) -> None:
    """Relay, and let time pass, until a message has failed and every lease has expired."""
    relay = a_relay(hold)
    async with asyncio.timeout(TIMEOUT):
        while (await stored(hold, message_id)).status is not MessageStatus.FAILED:
            await relay_all(relay)
            await clock.advance(timedelta(minutes=1))


async def all_published(hold: Holdfast, ids: list[str]) -> bool:
    return set(await states(hold, *ids)) == {"published"}


async def states(hold: Holdfast, *ids: str) -> list[str]:
    return [(await stored(hold, each)).status.value for each in ids]


@pytest.mark.clause("OUT-3")
async def test_messages_are_published_oldest_first_in_batches_of_a_hundred(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    ids = await added(hold, *[a_message(f"sub{number:03}") for number in range(150)])
    relay = a_relay(hold)

    await relay.run_once()
    first = [message.id for message in broker.received]
    await relay.run_once()

    assert sorted(first) == [f"sub{number:03}#0" for number in range(100)]
    assert sorted(broker.ids) == [f"sub{number:03}#0" for number in range(150)]
    assert broker.most_at_once == 100
    message = await stored(hold, ids[0])
    assert (message.status, message.retry_count) == (MessageStatus.PUBLISHED, 0)
    assert message.processed_at is not None


@pytest.mark.clause("OUT-3")
async def test_a_message_carries_its_id_type_route_body_and_headers(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    await added(hold, a_message(headers='{"traceparent": "00-1"}', exchange="other", routing_key="there"))

    await relay_all(a_relay(hold))

    [message] = broker.received
    assert message.id == "sub#0"
    assert message.type == "graded"
    assert tuple(message.route) == ("local", "other", "there")
    assert message.body == b'{"number": 0}'
    assert message.headers == {"traceparent": "00-1"}


@pytest.mark.clause("OUT-3")
async def test_a_message_is_published_at_once_after_it_was_stored(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    await until_hints_arrive(hold)
    async with running(hold, a_relay(hold, **SELDOM)):
        for number in range(3):
            await added(hold, a_message(number=number))
            await broker.until_asked(number + 1)

    assert broker.ids == ["sub#0", "sub#1", "sub#2"]


@pytest.mark.clause("OUT-3")
async def test_the_order_of_an_aggregate_is_kept_while_others_go_side_by_side(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    asked: set[str] = set()

    def refuse_once(message: OutgoingMessage) -> Exception | None:
        if message.id.endswith(("#1", "#3")) and message.id not in asked:
            asked.add(message.id)
            return too_large()
        return None

    broker.refuses = refuse_once
    ids = await added(hold, *[a_message(f"sub{each}", number) for number in range(5) for each in range(40)])
    relay = a_relay(hold)

    for _ in range(3):
        await relay_all(relay)
        await clock.advance(timedelta(seconds=10))

    assert broker.first_arrivals() == {f"sub{each}": [0, 1, 2, 3, 4] for each in range(40)}
    assert set(await states(hold, *ids)) == {"published"}
    assert len(broker.received) == 200
    assert broker.most_at_once > 1


@pytest.mark.clause("OUT-3")
async def test_a_refused_message_is_retried_with_backoff_and_then_a_dead_letter_with_a_ticket(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, metrics: MetricRegistry, logger: Logger
) -> None:
    broker.refuses = refusing(too_large)
    tickets: list[Ticket] = []
    hold.on_ticket(tickets.append)
    [message_id] = await added(hold, a_message())
    relay = a_relay(hold)

    delays = []
    for attempt in range(1, 5):
        await relay_all(relay)
        assert len(broker.asked) == attempt
        message = await stored(hold, message_id)
        assert (message.status, message.retry_count) == (MessageStatus.PENDING, attempt)
        assert message.due_at is not None
        delays.append((message.due_at - await clock.now()).total_seconds())
        await clock.advance(message.due_at - await clock.now())
    await relay_all(relay)

    message = await stored(hold, message_id)
    assert (message.status, message.retry_count) == (MessageStatus.FAILED, 5)
    assert message.error_message == "ValueError: the message is too large"
    for delay, expected in zip(delays, (2, 4, 8, 16), strict=True):
        assert 0.8 * expected - 1 < delay <= 1.2 * expected
    [letter] = await hold.dead_letters.list(ALL)
    assert letter.name == "holdfast.publish"
    assert letter.failure.message == "ValueError: the message is too large"
    await notify_tickets(hold)
    assert [ticket.kind for ticket in tickets] == [TicketKind.DEAD_LETTER]
    assert (metrics.value("message_retries"), metrics.value("messages_failed")) == (4, 1)
    assert [line["attempt"] for line in logger.lines("message retry scheduled")] == [1, 2, 3, 4]
    [line] = logger.lines("message failed")
    assert (line["outbox_id"], line["attempt"], line["level"]) == (message_id, 5, "warning")


@pytest.mark.clause("OUT-3")
async def test_a_failed_message_holds_back_its_own_aggregate_only(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    broker.refuses = refusing(too_large, "a#0")
    ids = await added(hold, a_message("a", 0), a_message("a", 1), a_message("b", 0))
    relay = a_relay(hold)

    await fail_for_good(hold, clock, ids[0])
    [later, other] = await added(hold, a_message("a", 2), a_message("b", 1))
    await relay_all(relay)

    assert await states(hold, *ids, later, other) == [
        "failed",
        "pending",
        "published",
        "pending",
        "published",
    ]
    assert broker.ids == ["b#0", "b#1"]
    asked = len(broker.asked)
    await relay_all(relay)
    assert len(broker.asked) == asked, "what is held is not read again and again"


@pytest.mark.clause("OUT-3")
@pytest.mark.parametrize("decision", ["retry", "skip"])
async def test_an_operator_retries_or_skips_a_failed_message_and_its_aggregate_goes_on(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, decision: str
) -> None:
    broker.refuses = refusing(too_large, "a#0")
    ids = await added(hold, a_message("a", 0), a_message("a", 1))
    await fail_for_good(hold, clock, ids[0])
    broker.refuses = refusing(too_large, "nothing")

    decide = getattr(hold.runtime.store.outbox, decision)
    assert await decide([ids[0]], note={"actor": "ann", "reason": "repaired"}) == [ids[0]]
    await relay_all(a_relay(hold))

    assert broker.ids == (["a#0", "a#1"] if decision == "retry" else ["a#1"])
    assert await states(hold, ids[1]) == ["published"]


@pytest.mark.clause("OUT-3")
async def test_a_replay_of_its_dead_letter_publishes_a_failed_message_with_a_fresh_budget(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    broker.refuses = refusing(too_large, "a#0")
    ids = await added(hold, a_message("a", 0), a_message("a", 1))
    await fail_for_good(hold, clock, ids[0])
    broker.refuses = refusing(too_large, "nothing")

    async with hold.worker(poll=0.05):
        progress = await replayed(hold, clock, await planned(hold))
        await until(lambda: all_published(hold, ids))

    assert progress.counts.states == {LetterState.VERIFIED: 1}
    assert broker.ids == ["a#0", "a#1"]
    message = await stored(hold, ids[0])
    assert (message.retry_count, message.note) == (
        0,
        {"actor": "holdfast", "reason": "its dead letter was replayed"},
    )


@pytest.mark.clause("OUT-3")
@pytest.mark.parametrize("decision", ["retry", "skip"])
async def test_an_operator_who_retries_or_skips_a_failed_message_ends_its_dead_letter(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, decision: str
) -> None:
    ended = {
        "retry": (LetterState.CLOSED, "its message was retried: the limit was raised"),
        "skip": (LetterState.DISCARDED, "its message was skipped: the limit was raised"),
    }
    state, reason = ended[decision]
    broker.refuses = refusing(too_large)
    ids = await added(hold, a_message("a"), a_message("b"))
    for message_id in ids:
        await fail_for_good(hold, clock, message_id)
    letters = {letter.job_id: letter for letter in await hold.dead_letters.list(ALL)}
    changed, other = [(await stored(hold, message_id)).dead_job_id or "" for message_id in ids]

    await getattr(hold.outbox, decision)([ids[0]], actor="ada", reason="the limit was raised")

    assert set(letters) == {changed, other}
    letter = (await hold.dead_letters.show(changed)).letter
    assert (letter.state, letter.version, letter.plan) == (state, letters[changed].version + 1, None)
    step = (await hold.runtime.store.dead_letters.steps(changed))[-1]
    assert (step.state, step.actor, step.reason) == (state, "ada", reason)
    assert (await hold.dead_letters.show(other)).letter.state is LetterState.NEW


async def test_a_letter_that_an_operator_has_planned_leaves_its_plan_when_its_message_is_retried(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    broker.refuses = refusing(too_large)
    [message_id] = await added(hold, a_message())
    await fail_for_good(hold, clock, message_id)
    await planned(hold)

    await hold.outbox.retry([message_id], actor="ada")

    [letter] = await hold.dead_letters.list(ALL)
    assert (letter.state, letter.plan, letter.notes) == (LetterState.CLOSED, None, "its message was retried")


async def test_a_letter_whose_message_was_retried_can_still_be_retried_and_changes_nothing(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    broker.refuses = refusing(too_large)
    [message_id] = await added(hold, a_message())
    await fail_for_good(hold, clock, message_id)
    [letter] = await hold.dead_letters.list(ALL)
    broker.refuses = lambda _: None
    await hold.outbox.retry([message_id], actor="ada")

    await hold.retry(letter.job_id)
    async with hold.worker(poll=0.05):
        await hold.handle(letter.job_id).result(timeout=TIMEOUT)
        await until(lambda: all_published(hold, [message_id]))

    assert broker.ids == ["sub#0"]
    note = (await stored(hold, message_id)).note or {}
    assert (note["action"], note["actor"]) == ("retried", "ada")


async def test_a_message_that_fails_again_after_a_replay_has_another_dead_letter(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    broker.refuses = refusing(too_large)
    [message_id] = await added(hold, a_message())
    await fail_for_good(hold, clock, message_id)
    [first] = await hold.dead_letters.list(ALL)
    await hold.retry(first.job_id)
    async with hold.worker(poll=0.05):
        await hold.handle(first.job_id).result(timeout=TIMEOUT)

    await fail_for_good(hold, clock, message_id)

    new = await hold.dead_letters.list(LetterFilter(states=(LetterState.NEW,), limit=10))
    assert [letter.job_id for letter in new] != [first.job_id]
    assert len(new) == 1
    assert (await hold.read(first.job_id)).status is Status.COMPLETED


@pytest.mark.clause("OUT-3")
async def test_two_relays_share_the_work_and_keep_the_order(hold: Holdfast, broker: ScriptedBroker) -> None:
    relays = [a_relay(hold, "one"), a_relay(hold, "two")]
    await relay_all(*relays)
    for relay in relays:  # the first gives up what is above its share, and the second takes it
        await relay._leases.renew()

    ids = await added(hold, *[a_message(f"sub{each}", number) for number in range(6) for each in range(40)])
    counts = []
    for relay in relays:
        before = len(broker.received)
        await relay_all(relay)
        counts.append(len(broker.received) - before)

    assert min(counts) > 0
    assert sum(counts) == 240
    assert broker.first_arrivals() == {f"sub{each}": list(range(6)) for each in range(40)}
    assert set(await states(hold, *ids)) == {"published"}


@pytest.mark.clause("OUT-3")
async def test_a_relay_that_was_paused_and_lost_its_partitions_writes_nothing_and_is_counted(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, metrics: MetricRegistry, logger: Logger
) -> None:
    ids = await added(hold, a_message(number=0), a_message(number=1))
    stuck = broker.answering = asyncio.Event()
    paused = asyncio.create_task(a_relay(hold, "paused").run_once())
    await broker.until_asked(1)
    await clock.advance(LEASE + timedelta(seconds=1))
    broker.answering = asyncio.Event()
    broker.answering.set()
    await relay_all(a_relay(hold, "other"))
    assert await states(hold, *ids) == ["published", "published"]
    marked = [(await stored(hold, each)).processed_at for each in ids]

    stuck.set()
    await paused

    assert [(await stored(hold, each)).processed_at for each in ids] == marked
    assert broker.first_arrivals() == {"sub": [0, 1]}
    assert metrics.value("messages_published") == 2
    assert metrics.value("fenced") == 2
    assert [(line["outbox_id"], line["relay"]) for line in logger.lines("write fenced")] == [
        (each, "paused") for each in ids
    ]


async def test_a_message_of_a_lost_partition_that_was_refused_is_neither_retried_nor_failed(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, metrics: MetricRegistry
) -> None:
    broker.refuses = refusing(too_large)
    broker.answers_refusals = asyncio.Event()
    [message_id] = await added(hold, a_message())
    paused = asyncio.create_task(a_relay(hold, "paused").run_once())
    await broker.until_asked(1)
    await clock.advance(LEASE + timedelta(seconds=1))
    await hold.runtime.store.outbox.lease_partitions("other", lease=LEASE)

    broker.answers_refusals.set()
    await paused

    message = await stored(hold, message_id)
    assert (message.status, message.retry_count) == (MessageStatus.PENDING, 0)
    assert metrics.value("fenced") == 1
    assert metrics.value("message_retries") == 0


@pytest.mark.clause("OUT-4")
async def test_a_relay_killed_between_publish_and_mark_publishes_again_under_the_same_id(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    [message_id] = await added(hold, a_message())
    broker.answering.clear()
    killed = asyncio.create_task(a_relay(hold, "killed").run_once())
    await broker.until_asked(1)
    killed.cancel()
    await asyncio.wait([killed])
    broker.answering.set()

    successor = a_relay(hold, "successor")
    await relay_all(successor)
    assert broker.ids == ["sub#0"], "the lease of the dead relay has not expired"
    await clock.advance(LEASE + timedelta(seconds=1))
    await successor._leases.renew()
    await relay_all(successor)

    assert broker.ids == ["sub#0", "sub#0"]
    assert await states(hold, message_id) == ["published"]


@pytest.mark.clause("OUT-4")
async def test_while_the_broker_is_down_everything_is_stored_and_arrives_later_with_nothing_spent(
    hold: Holdfast, broker: ScriptedBroker, logger: Logger
) -> None:
    @hold.job("grade")
    async def grade() -> str:
        return "done"

    broker.refuses = refusing(down)
    fake = FakeClock()
    relay = a_relay(hold, clock=fake)
    ids = await added(hold, *[a_message(f"sub{each}", number) for number in range(3) for each in range(50)])
    pause = await relay.run_once()
    tried = len(broker.asked)
    for _ in range(5):
        fake.at += timedelta(seconds=10)
        ids += await added(hold, a_message("late", len(ids)))
        pause = await relay.run_once()
    async with hold.worker(poll=0.05):
        job = await grade.submit()
        assert await job.result(timeout=TIMEOUT) == "done"

    assert 0 < pause <= 10
    assert len(broker.asked) == tried + 5, "during the outage, one message at a time is tried"
    assert set(await states(hold, *ids)) == {"pending"}
    assert len(logger.lines("broker unavailable")) == 1

    broker.refuses = refusing(down, "nothing")
    fake.at += timedelta(seconds=10)
    await relay_all(relay)

    assert {message.retry_count for message in [await stored(hold, each) for each in ids]} == {0}
    assert set(await states(hold, *ids)) == {"published"}
    assert all(numbers == sorted(numbers) for numbers in broker.first_arrivals().values())
    [line] = logger.lines("broker available")
    assert (line["broker"], line["relay"]) == ("local", "relay")
    assert line["duration_ms"] >= 50_000


@pytest.mark.clause("OUT-4")
async def test_while_one_broker_is_down_the_messages_of_another_go_on_and_overtake_none_of_their_aggregate(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    other = ScriptedBroker()
    declare(hold, other, "indexed", name="other")
    broker.refuses = refusing(down)
    fake = FakeClock()
    relay = a_relay(hold, clock=fake)
    waiting = await added(hold, *[a_message(f"sub{each}") for each in range(150)])
    behind = await added(hold, a_message("sub3", 1, message_type="indexed"))
    free = await added(hold, *[a_message(f"doc{each}", message_type="indexed") for each in range(150)])

    await relay.run_once()  # it meets the outage
    await relay_all(relay)

    assert set(await states(hold, *free)) == {"published"}
    assert set(await states(hold, *waiting, *behind)) == {"pending"}
    assert other.most_at_once <= 100

    broker.refuses = lambda _: None
    fake.at += timedelta(seconds=10)
    await relay_all(relay)
    assert set(await states(hold, *waiting, *behind)) == {"published"}


async def test_a_blocked_route_raises_one_alert_and_the_others_go_on(
    hold: Holdfast, broker: ScriptedBroker, logger: Logger
) -> None:
    broker.refuses = lambda message: no_route() if message.type == "graded" else None
    tickets: list[Ticket] = []
    hold.on_ticket(tickets.append)
    graded = await added(hold, *[a_message(f"sub{each}") for each in range(150)])
    mailed = await added(hold, *[a_message(f"mail{each}", message_type="mailed") for each in range(5)])
    relay = a_relay(hold)

    await relay_all(relay)
    asked = len(broker.asked)
    await relay_all(relay)

    assert set(await states(hold, *mailed)) == {"published"}
    assert {(await stored(hold, each)).held_by for each in graded} == {"local//graded"}
    assert {(await stored(hold, each)).retry_count for each in graded} == {0}
    assert len(broker.asked) == asked
    [line] = logger.lines("route blocked")
    assert (line["route"], line["message"]) == ("local//graded", "there is no exchange 'vstep.exchange'")
    await notify_tickets(hold)
    [ticket] = tickets
    assert ticket.kind is TicketKind.ROUTE
    assert ticket.title == (
        "messages to local//graded are refused, and wait in the outbox: there is no exchange 'vstep.exchange'"
    )
    assert await hold.dead_letters.list(ALL) == []


@pytest.mark.parametrize("answer", ["takes it", "refuses it for its own fault"])
async def test_a_probe_unblocks_a_route_that_works_again(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, logger: Logger, answer: str
) -> None:
    broker.refuses = refusing(no_route)
    ids = await added(hold, *[a_message(f"sub{each}") for each in range(5)])
    relay = a_relay(hold, poll=1e-6)
    await relay_all(relay)
    asked = len(broker.asked)

    await clock.advance(PROBE)
    await relay_all(relay)
    assert len(broker.asked) == asked + 1, "one message is tried"
    await relay_all(relay)
    assert len(broker.asked) == asked + 1, "and no other before the time"

    broker.refuses = refusing(too_large, "nothing" if answer == "takes it" else "sub0#0")
    await clock.advance(PROBE)
    await relay_all(relay)

    first, *others = await states(hold, *ids)
    assert first == ("published" if answer == "takes it" else "pending")
    assert set(others) == {"published"}
    assert await hold.runtime.store.outbox.routes() == []
    assert len(logger.lines("route unblocked")) == 1


async def test_a_route_that_is_blocked_again_raises_another_alert(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    tickets: list[Ticket] = []
    hold.on_ticket(tickets.append)
    relay = a_relay(hold, poll=1e-6)
    for number in range(2):
        broker.refuses = refusing(no_route)
        await added(hold, a_message(number=number))
        await relay_all(relay)
        broker.refuses = lambda _: None
        await clock.advance(PROBE)
        await relay_all(relay)

    await notify_tickets(hold)

    assert [ticket.kind for ticket in tickets] == [TicketKind.ROUTE] * 2
    assert broker.ids == ["sub#0", "sub#1"]


@pytest.mark.parametrize("unblocked_by", ["an operator", "a probe"])
async def test_an_unblocked_route_has_no_alarm_and_raises_another_when_it_is_blocked_again(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, unblocked_by: str
) -> None:
    tickets: list[Ticket] = []
    hold.on_ticket(tickets.append)
    broker.refuses = refusing(no_route)
    await added(hold, a_message("a"))
    relay = a_relay(hold, poll=1e-6)
    await relay_all(relay)

    if unblocked_by == "an operator":
        assert await hold.outbox.unblock("local//graded", actor="ada") == 1
    else:
        broker.refuses = lambda _: None
        await clock.advance(PROBE)
        await relay_all(relay)

    assert not await hold.runtime.store.tickets.clear_alarm(route_alarm("local//graded")), "it is cleared"
    broker.refuses = refusing(no_route)
    await added(hold, a_message("b"))
    await relay_all(relay)
    await notify_tickets(hold)
    assert [ticket.kind for ticket in tickets] == [TicketKind.ROUTE] * 2


async def test_a_full_route_is_blocked_alone_and_tried_again_after_seconds(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, logger: Logger
) -> None:
    broker.refuses = lambda message: full() if message.type == "graded" else None
    graded = await added(hold, a_message("a", 0), a_message("a", 1), a_message("b", 0))
    mailed = await added(hold, a_message("c", message_type="mailed"))
    relay = a_relay(hold, poll=1e-6)

    await relay_all(relay)
    [route] = await hold.outbox.routes()
    assert route.probe_at - route.blocked_at == PROBE_WHEN_FULL
    asked = len(broker.asked)
    for tries in (1, 2):
        await clock.advance(PROBE_WHEN_FULL)
        await relay_all(relay)
        assert len(broker.asked) == asked + tries, "the next try is as soon as the first"

    assert await states(hold, *graded, *mailed) == ["pending"] * 3 + ["published"]
    assert {(await stored(hold, each)).retry_count for each in graded} == {0}
    assert logger.lines("broker unavailable") == []
    broker.refuses = lambda _: None
    await clock.advance(PROBE_WHEN_FULL)
    await relay_all(relay)
    assert await all_published(hold, graded)
    assert broker.first_arrivals() == {"a": [0, 1], "b": [0], "c": [0]}


async def test_a_route_that_is_full_again_and_again_is_one_incident_with_one_ticket(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock
) -> None:
    tickets: list[Ticket] = []
    hold.on_ticket(tickets.append)
    relay = a_relay(hold, poll=1e-6)
    alarm = route_alarm("local//graded")
    for number in range(3):
        broker.refuses = refusing(full)
        await added(hold, a_message(number=number))
        await relay_all(relay)
        broker.refuses = lambda _: None
        await clock.advance(PROBE_WHEN_FULL)
        await relay_all(relay)
    assert broker.ids == ["sub#0", "sub#1", "sub#2"]

    await clock.advance(QUIET)
    await relay_all(relay)

    assert not await hold.runtime.store.tickets.clear_alarm(alarm), "it took messages for long enough"
    broker.refuses = refusing(full)
    await added(hold, a_message(number=3))
    await relay_all(relay)
    await notify_tickets(hold)
    assert [ticket.kind for ticket in tickets] == [TicketKind.ROUTE] * 2


async def test_an_operator_who_unblocks_a_full_route_ends_the_incident(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    broker.refuses = refusing(full)
    await added(hold, a_message())
    await relay_all(a_relay(hold))

    assert await hold.outbox.unblock("local//graded", actor="ada") == 1

    outbox, tickets = hold.runtime.store.outbox, hold.runtime.store.tickets
    assert not await tickets.clear_alarm(route_alarm("local//graded"))
    assert await outbox.unblock_route("local//graded") is None


async def test_relays_release_what_an_operator_could_not_release_any_more(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    broker.refuses = refusing(no_route)
    ids = await added(hold, *[a_message(f"sub{each}") for each in range(5)])
    await relay_all(a_relay(hold))
    broker.refuses = lambda _: None
    outbox = hold.runtime.store.outbox

    await outbox.unblock_route("local//graded")  # and the process of the operator dies
    await relay_all(a_relay(hold))

    assert await all_published(hold, ids)
    assert await outbox.unblock_route("local//graded") is None


async def test_a_message_of_an_undeclared_type_waits_with_one_alert_until_a_relay_knows_it(
    hold: Holdfast, broker: ScriptedBroker, clock: DatabaseClock, logger: Logger
) -> None:
    tickets: list[Ticket] = []
    hold.on_ticket(tickets.append)
    ids = await added(
        hold, a_message("a", message_type="unheard"), a_message("b", message_type="unheard"), a_message("c")
    )
    relay = a_relay(hold, poll=1e-6)
    await relay_all(relay)
    await clock.advance(PROBE)
    await relay_all(relay)

    assert broker.ids == ["c#0"]
    assert await states(hold, *ids) == ["pending", "pending", "published"]
    await notify_tickets(hold)
    assert [ticket.kind for ticket in tickets] == [TicketKind.ROUTE]
    [line] = logger.lines("route blocked")
    assert line["message"] == (
        "no message type 'unheard' is declared here; declare it with @hold.message(...)"
    )

    hold.message("unheard", broker=None)(type("Unheard", (BaseModel,), {}))
    await clock.advance(PROBE)
    await relay_all(relay)

    assert set(await states(hold, *ids)) == {"published"}


async def test_a_row_whose_headers_are_not_texts_is_the_fault_of_the_message(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    [message_id] = await added(hold, a_message(headers="[1]"))

    await relay_all(a_relay(hold))

    message = await stored(hold, message_id)
    assert (message.status, message.retry_count) == (MessageStatus.PENDING, 1)
    assert message.error_message == "the column headers must be a JSON object whose values are texts"


async def test_a_relay_that_stops_writes_what_is_in_flight_and_releases_its_partitions(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    ids = await added(hold, a_message(number=0), a_message(number=1))
    broker.answering.clear()
    relay = a_relay(hold)
    async with running(hold, relay):
        await broker.until_asked(1)
        relay.finish()
        broker.answering.set()

    assert await states(hold, *ids) == ["published", "pending"]
    await relay_all(a_relay(hold, "next"))
    assert broker.ids == ["sub#0", "sub#1"], "no lease has to expire first"


async def test_a_message_that_outlasts_the_grace_time_is_given_up_and_published_again(
    hold: Holdfast, broker: ScriptedBroker
) -> None:
    ids = await added(hold, a_message("slow"), a_message("quick"))
    broker.answering.clear()
    async with hold.worker(poll=0.05, grace=0):
        await broker.until_asked(2)

    assert await states(hold, *ids) == ["pending", "pending"]
    broker.answering.set()
    await relay_all(a_relay(hold, "next"))
    assert sorted(broker.ids) == ["quick#0", "quick#0", "slow#0", "slow#0"]


async def test_published_messages_are_logged_when_routine_lines_are_wanted(
    hold: Holdfast, broker: ScriptedBroker, logger: Logger, metrics: MetricRegistry
) -> None:
    [message_id] = await added(hold, a_message())

    await relay_all(a_relay(hold))

    [line] = logger.lines("message published")
    assert line["level"] == "debug"
    assert {name: line[name] for name in ("outbox_id", "message_type", "aggregate_id", "route")} == {
        "outbox_id": message_id,
        "message_type": "graded",
        "aggregate_id": "sub",
        "route": "local//graded",
    }
    assert metrics.value("messages_published") == 1
