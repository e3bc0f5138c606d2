"""A consumer in a worker: it acknowledges what is stored, and nothing else."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Status
from holdfast.core.errors import Retryable, StoreUnavailable
from holdfast.core.messages.inbox import InboxAnswer, InboxItem, RefusalReason
from holdfast.engine.messages.receiving.consumer import LONGEST_PAUSE, POSTPONED_FOR
from holdfast.ports import Store
from tests.contract.conftest import FakeClock, Logger
from tests.contract.consumers import QUEUE, Application, GradingRequest, body, run_until_idle
from tests.contract.steps import TIMEOUT

LEASE = timedelta(minutes=1)
POSTPONED = timedelta(seconds=POSTPONED_FOR)


@pytest.fixture
def app(hold: Holdfast) -> Application:
    """An application with a consumer."""
    made = Application(hold)
    made.consume()
    return made


class WatchedStore:
    """A store whose inbox does what a test says before, or after, it writes."""

    def __init__(self, behind: Store) -> None:
        self.behind = behind
        self.inbox = self
        self.fails = 0
        self.committed = asyncio.Event()
        self.batches: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    async def receive(self, consumer: str, batch: Sequence[InboxItem]) -> list[InboxAnswer]:
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("the store is away")
        answers = await self.behind.inbox.receive(consumer, batch)
        self.batches.append(len(batch))
        self.committed.set()
        return answers


async def test_messages_are_stored_and_acknowledged_in_batches(app: Application, hold: Holdfast) -> None:
    for number in range(250):
        app.broker.deliver(QUEUE, body(f"r-{number}"))
    store = WatchedStore(hold.runtime.store)
    consumer = app.consumer(store=store)

    await run_until_idle(consumer, app.broker)

    [subscription] = app.broker.subscriptions
    assert store.batches == subscription.batches == [100, 100, 50]
    assert len(app.broker.acknowledged) == 250


@pytest.mark.clause("OUT-5")
@pytest.mark.clause("IDM-4")
async def test_a_message_that_is_delivered_a_hundred_times_is_one_job(
    app: Application, hold: Holdfast
) -> None:
    for _ in range(100):
        app.broker.deliver(QUEUE, body())

    await run_until_idle(app.consumer(), app.broker)

    assert len(app.broker.acknowledged) == 100
    assert len(await app.jobs()) == 1


async def test_two_consumers_of_a_queue_make_one_job_of_each_message(app: Application) -> None:
    for number in range(100):
        for _ in range(2):
            app.broker.deliver(QUEUE, body(f"r-{number}"))

    await asyncio.gather(*(app.consumer().run_once() for _ in range(2)))

    assert len(app.broker.acknowledged) == 200
    assert len(await app.hold.runtime.store.claim("w", "default", limit=1_000, lease=LEASE)) == 100


@pytest.mark.clause("OUT-5")
async def test_a_consumer_that_dies_between_commit_and_acknowledgement_makes_no_second_job(
    app: Application, hold: Holdfast
) -> None:
    app.broker.deliver(QUEUE, body())
    app.broker.loses_acknowledgements = True
    consumer = app.consumer()

    pause = await consumer.run_once()

    assert 0 < pause <= LONGEST_PAUSE
    assert app.broker.acknowledged == []
    [job_id] = await app.jobs()
    await run_until_idle(app.consumer(), app.broker)
    [acknowledged] = app.broker.acknowledged
    assert acknowledged.redelivered
    assert await app.jobs() == [job_id]


async def test_nothing_is_acknowledged_while_the_store_is_unavailable(
    app: Application, hold: Holdfast
) -> None:
    app.broker.deliver(QUEUE, body())
    store = WatchedStore(hold.runtime.store)
    store.fails = 2
    consumer = app.consumer(store=store)

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await consumer.run_once()
        assert app.broker.acknowledged == []

    await consumer.run_once()
    assert len(app.broker.acknowledged) == 1
    assert not app.broker.acknowledged[0].redelivered


async def test_an_outage_of_the_broker_is_two_log_lines_and_loses_nothing(
    app: Application, logger: Logger
) -> None:
    app.broker.unavailable = True
    consumer = app.consumer()

    pauses = [await consumer.run_once() for _ in range(12)]
    app.broker.unavailable = False
    app.broker.deliver(QUEUE, body())
    await run_until_idle(consumer, app.broker)

    assert max(pauses) <= LONGEST_PAUSE
    assert [line["queue"] for line in logger.lines("broker unavailable")] == [QUEUE]
    assert len(logger.lines("broker available")) == 1
    assert len(await app.jobs()) == 1


async def test_a_connection_that_is_lost_while_it_waits_is_made_again(app: Application) -> None:
    consumer = app.consumer()
    waiting = asyncio.create_task(consumer.run_once())
    async with asyncio.timeout(TIMEOUT):
        while not app.broker.subscriptions:
            await asyncio.sleep(0)

    app.broker.cut()

    assert await waiting > 0
    app.broker.deliver(QUEUE, body())
    await run_until_idle(consumer, app.broker)
    assert len(await app.jobs()) == 1


async def test_a_postponed_message_goes_back_after_a_pause_and_the_others_go_on(hold: Holdfast) -> None:
    app, clock, away = Application(hold), FakeClock(), [True]

    def take(request: GradingRequest) -> Any:
        if request.requestId == "r-1" and away:
            raise Retryable("the tenant's database is away")
        return app.take(request)

    app.consume(take)
    consumer = app.consumer(clock=clock)
    app.broker.deliver(QUEUE, body("r-1"))
    app.broker.deliver(QUEUE, body("r-2"))

    await consumer.run_once()

    [subscription] = app.broker.subscriptions
    assert len(app.broker.acknowledged) == len(subscription.unacknowledged) == 1
    away.clear()
    clock.at += POSTPONED
    await run_until_idle(consumer, app.broker)
    assert app.broker.acknowledged[-1].redelivered
    assert len(await app.jobs()) == 2


async def test_a_message_that_is_postponed_too_often_becomes_a_dead_letter(hold: Holdfast) -> None:
    app, clock = Application(hold), FakeClock()
    calls = []

    def take(request: GradingRequest) -> Any:
        calls.append(request)
        raise Retryable("the tenant's database is away")

    app.consume(take)
    consumer = app.consumer(clock=clock)
    app.broker.deliver(QUEUE, body())

    async with asyncio.timeout(TIMEOUT):
        while not app.broker.acknowledged:
            clock.at += POSTPONED
            await consumer.run_once()

    assert len(calls) == 6
    [letter] = await app.letters()
    assert letter.failure.context["reason"] == RefusalReason.CONSUMER_FAILED
    assert "the tenant's database is away" in letter.failure.message


async def test_what_is_refused_is_acknowledged_and_does_not_stop_the_others(app: Application) -> None:
    for sent in (b"{", body("r-1"), b"\x80", body("r-2")):
        app.broker.deliver(QUEUE, sent)

    await run_until_idle(app.consumer(), app.broker)

    assert len(app.broker.acknowledged) == 4
    assert len(await app.jobs()) == 2
    assert len(await app.letters()) == 2


async def test_a_worker_receives_stores_and_runs(app: Application, hold: Holdfast) -> None:
    async with hold.worker(), asyncio.timeout(TIMEOUT):
        app.broker.deliver(QUEUE, body("r-1", text="an essay"))
        while not app.broker.acknowledged:
            await asyncio.sleep(0.005)
        [job_id] = await app.jobs()
        job = await hold.wait(job_id)

    assert (job.status, hold.load_result(job)) == (Status.COMPLETED, "r-1: an essay")
    assert app.broker.subscriptions == []


async def test_a_worker_that_stops_leaves_what_it_has_not_stored_to_the_next(
    app: Application, hold: Holdfast
) -> None:
    async with hold.worker():
        async with asyncio.timeout(TIMEOUT):
            while not app.broker.subscriptions:
                await asyncio.sleep(0.005)
    app.broker.deliver(QUEUE, body())

    assert len(app.broker.queues[QUEUE]) == 1
    assert app.broker.subscriptions == []


async def test_messages_are_counted_by_what_became_of_them(app: Application, hold: Holdfast) -> None:
    for sent in (body(), body(), b"{"):
        await app.receive(sent)

    counted: Any = hold.runtime.metrics
    found = {
        outcome: counted.value("messages_received", outcome=outcome)
        for outcome in ("new", "repeated", "refused", "postponed")
    }
    assert found == {"new": 1, "repeated": 1, "refused": 1, "postponed": 0}
