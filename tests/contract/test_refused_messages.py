"""A refused message is repaired as every dead letter is: a replay gives it to its consumer again."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Status
from holdfast.core.errors import ConfigError, Permanent
from holdfast.core.messages.dead_message import CONSUME, DeadMessage
from holdfast.core.messages.inbox import InboxItem, ReceivedAs, RefusalReason
from holdfast.core.messages.outbox import MessageFilter
from holdfast.engine.messages.receiving.receiver import Receiver
from holdfast.operations import LetterState, Ticket
from holdfast.ports import Store
from tests.builders import a_failure, a_job
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.consumers import QUEUE, Application, GradingRequest, body
from tests.contract.letters import letter_of, notify_tickets, opened, replayed, run_archiver
from tests.contract.stored_letters import a_letter, to_archive

DEAD_QUEUE = "grading.dlq"
DEATH = {
    "x-first-death-reason": "rejected",
    "x-first-death-queue": QUEUE,
    "x-first-death-exchange": "vstep.exchange",
    "x-death": [{"routing-keys": ["grading.request"], "queue": QUEUE}],
}


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger) as made:
        yield made


async def replay_corrected(hold: Holdfast, clock: DatabaseClock, job_id: str, **correct: Any) -> None:
    await hold.dead_letters.triage(job_id, "data", actor="ann")
    await hold.dead_letters.remediate(job_id, "corrected by hand", actor="ann", correct=correct or None)
    plan = await hold.dead_letters.plan(job_id, safe="the inbox makes it once", actor="ann")
    assert plan.token is not None, plan.refused
    async with hold.worker(poll=0.05):
        await replayed(hold, clock, plan.token)


async def test_a_refused_message_is_received_after_its_body_was_corrected(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    app = Application(hold)
    app.consume()
    refused = await app.receive(b'{"requestId": "r-1", "text": 5}')

    await replay_corrected(hold, clock, refused.job_id or "", body='{"requestId": "r-1", "text": "five"}')

    [job_id] = await app.jobs()
    assert (await hold.read(job_id)).status is Status.COMPLETED
    assert (await letter_of(hold, refused.job_id or "")).state is LetterState.VERIFIED
    again = await app.receive(b'{"requestId": "r-1", "text": "five"}')
    assert (again.outcome, again.job_id) == (ReceivedAs.REPEATED, job_id)


async def test_a_message_that_is_refused_again_fails_its_replay_and_makes_no_second_letter(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    app = Application(hold)
    app.consume()
    refused = await app.receive(b'{"requestId": "r-1", "text": 5}')

    await replay_corrected(hold, clock, refused.job_id or "", body='{"requestId": "r-1", "text": 6}')

    [letter] = await app.letters()
    assert (letter.job_id, letter.state) == (refused.job_id, LetterState.NEW)
    assert "does not fit its schema: text" in letter.failure.message
    assert await app.jobs() == []


async def test_a_message_is_received_after_its_consumer_was_repaired(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    app, broken = Application(hold), [True]

    def take(request: GradingRequest) -> Any:
        if broken:
            raise Permanent("a mistake in the code")
        return app.take(request)

    app.consume(take)
    refused = await app.receive(body())
    broken.clear()

    await replay_corrected(hold, clock, refused.job_id or "")

    assert len(await app.jobs()) == 1


async def test_a_body_that_was_cut_is_not_replayed_as_it_is(hold: Holdfast, clock: DatabaseClock) -> None:
    app = Application(hold)
    app.consume()
    refused = await app.receive(body(text="x" * 1_000_000))

    await replay_corrected(hold, clock, refused.job_id or "")

    [letter] = await app.letters()
    assert "the stored body was cut" in letter.failure.message


async def test_a_binary_body_is_replayed_as_it_was_and_never_unpickled(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    app = Application(hold)
    app.consume()
    refused = await app.receive(b"\x80\x04K\x01.", content_type="application/x-python-serialize")

    await replay_corrected(hold, clock, refused.job_id or "")

    [letter] = await app.letters()
    assert "malformed" in letter.failure.message


# The dead-letter queue of a broker.


async def dead_lettered(hold: Holdfast, app: Application, sent: bytes, **fields: Any) -> Any:
    """Receive a message from the dead-letter queue, as its reader does."""
    app.broker.deliver(DEAD_QUEUE, sent, **fields)
    [message] = app.broker.take(DEAD_QUEUE, 1)
    [received] = await Receiver(hold.runtime, hold._registry.consumers[DEAD_QUEUE]).receive([message])
    return received


@pytest.mark.clause("GRD-11")
@pytest.mark.parametrize(
    ("headers", "reason"), [(DEATH, "rejected"), ({}, "unknown")], ids=["reason", "no reason"]
)
async def test_each_message_of_a_dead_letter_queue_is_a_dead_letter_with_its_reason_and_a_ticket_once(
    hold: Holdfast, *, headers: dict[str, Any], reason: str
) -> None:
    app = Application(hold)
    hold.dead_letter_queue(DEAD_QUEUE)
    tickets: list[Ticket] = []
    hold.on_ticket(tickets.append)

    first = await dead_lettered(hold, app, b"not JSON", message_id="m-1", headers=headers)
    again = await dead_lettered(hold, app, b"not JSON", message_id="m-1", headers=headers)

    assert first.reason is RefusalReason.DEAD_LETTERED
    assert again.job_id == first.job_id
    [letter] = await app.letters()
    assert letter.failure.context["first_death_reason"] == reason
    await notify_tickets(hold)
    [ticket] = tickets
    assert (ticket.job_id, ticket.title.endswith(reason)) == (letter.job_id, True)


@pytest.mark.clause("GRD-11")
async def test_a_replay_gives_a_dead_lettered_message_to_the_consumer_of_its_first_queue(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    app = Application(hold)
    app.consume()
    hold.dead_letter_queue(DEAD_QUEUE)
    moved = await dead_lettered(hold, app, body("r-9"), message_id="m-9", headers=DEATH)

    await replay_corrected(hold, clock, moved.job_id)

    [job_id] = await app.jobs()
    assert await hold.runtime.store.keys_of([job_id]) == {job_id: "r-9"}


@pytest.mark.clause("GRD-11")
async def test_without_that_consumer_a_replay_publishes_the_message_where_it_was_published(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    app = Application(hold)
    hold.message(
        "graded elsewhere", exchange="vstep.exchange", routing_key="grading.request", identity="requestId"
    )(type("Elsewhere", (GradingRequest,), {}))
    hold.dead_letter_queue(DEAD_QUEUE)
    moved = await dead_lettered(hold, app, body("r-9"), message_id="m-9", headers=DEATH)
    app.broker.unavailable = True  # so that it stays in the outbox

    await replay_corrected(hold, clock, moved.job_id)

    [message] = await hold.runtime.store.outbox.find(MessageFilter())
    assert (message.message_type, message.message_id) == ("graded elsewhere", "m-9")
    assert json.loads(message.payload)["requestId"] == "r-9"


# Letters of messages have a cap of their own.


@pytest.mark.clause("DLQ-3")
async def test_a_flood_of_refused_messages_evicts_no_letter_of_a_job(
    store: Store, clock: DatabaseClock
) -> None:
    jobs = [await a_letter(store) for _ in range(2)]
    await clock.advance(timedelta(minutes=1))
    flood = []
    for number in range(5):
        dead = DeadMessage(a_job().id, CONSUME, "{}", a_failure())
        await store.inbox.receive("grading", [InboxItem(f"m-{number}", "", dead)])
        flood.append(dead.id)
        await clock.advance(timedelta(seconds=1))

    assert await to_archive(store, beyond=2) == flood[:3]
    assert await to_archive(store, beyond=1) == [jobs[0], *flood[:4]]


async def test_a_worker_purges_the_inbox_after_two_weeks(hold: Holdfast, clock: DatabaseClock) -> None:
    app = Application(hold)
    app.consume()
    await app.receive(body())
    await run_archiver(hold, clock)
    await clock.advance(timedelta(days=15))

    await run_archiver(hold, clock)

    counted: Any = hold.runtime.metrics
    assert counted.value("messages_purged") == 1


# Declarations.


def test_a_queue_has_one_consumer(hold: Holdfast) -> None:
    app = Application(hold)
    app.consume()

    with pytest.raises(ConfigError, match=r"has the consumer 'grading.request' already"):
        hold.consumer(GradingRequest, queue=QUEUE, name="another")(app.take)
    with pytest.raises(ConfigError, match=r"a consumer named 'grading.request' is declared twice"):
        hold.dead_letter_queue("other", name=QUEUE)
