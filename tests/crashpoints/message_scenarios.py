"""Scenarios around messages: publishing, relaying, announcing, receiving.

That messages arrive in the order of their aggregates, that attempts are spent by refusals alone, that a relay writes
under its lease, that every end is announced once, and that what is acknowledged is stored, the oracles check at each
commit, arrival and acknowledgement of every story.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from holdfast import Status
from holdfast.core.messages.dead_message import CONSUME, PUBLISH
from holdfast.core.messages.outbox import PROBE, MessageFilter, MessageStatus
from holdfast.errors import StateRefused
from tests.crashpoints.claims import Scenarios, assert_completed, status_of, unless_refused
from tests.simulation.message_jobs import FOR_EVER, RELAY_BUDGET, Note, Request, serials_of
from tests.simulation.simulated_broker import HANGS, ROUTE, UNCONFIRMED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.crashpoints.story import App, Story

scenario = Scenarios()

A_BATCH = (("a", 1), ("a", 2), ("b", 1), ("c", 1))
"""Messages by what they are about, and their number."""


A_RETRY = 8.0
"""Seconds after which a refused message is due again, at the latest; a relay's lease is longer."""


# Publishing.


@scenario
async def publish(story: Story) -> None:
    """A message that was acknowledged is stored, and arrives; one that was not may be stored once."""
    story.has_messages(services=False)

    async def act(app: App) -> None:
        await app.hold.publish(note("a", 1))

    await story.client(act)
    await story.play_out()

    assert_arrived(story, ["a 1"] * story.ended_well, maybe=["a 1"])


@scenario
async def publish_within(story: Story) -> None:
    """A message is stored with the rows of its transaction, or with none of them."""
    story.has_messages(services=False)
    letters_table(story)

    async def act(app: App) -> None:
        with closing(story.own_connection()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO letters VALUES (1)")
            await app.hold.publish(note("a", 1), within=connection)
            await app.hold.publish(note("a", 2), within=connection)
            connection.execute("COMMIT")
        story.look()

    await story.client(act)
    story.look()
    await story.play_out()

    assert_arrived(story, ["a 1", "a 2"] * letters(story))


@scenario
async def publish_inside_a_job(story: Story) -> None:
    """A job publishes each of its messages once, in however many attempts, and announces each of them."""
    story.has_messages(services=False)
    job = await story.submit("letter", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    if status_of(story, job) == Status.COMPLETED:  # and has not cancelled itself
        own = serials_of(job)
        assert own <= arrived(story).keys(), f"{own - arrived(story).keys()} is missing"


# Relaying.


@scenario
async def relay_a_batch(story: Story) -> None:
    """Every message arrives, also those whose confirmation was lost; only these arrive twice."""
    story.has_messages(None, UNCONFIRMED)
    await published(story, *A_BATCH)

    await story.worker()
    await story.play_out()

    serials = [f"{about} {number}" for about, number in A_BATCH]
    assert_arrived(story, serials)
    if story.calm:
        assert sum(arrived(story).values()) == len(A_BATCH) + 1, f"{arrived(story)}"


@scenario
async def relay_into_a_dead_letter(story: Story) -> None:
    """A message that is refused for its own fault becomes one dead letter, and holds back its own aggregate alone."""
    story.has_messages()
    await published(story, ("a", 1), refusals=FOR_EVER)
    await published(story, ("a", 2), ("b", 1))

    await story.worker()
    for times in range(1, RELAY_BUDGET):
        await story.until("it is refused", lambda: story.broker.refused["a 1"] >= times)  # noqa: B023 - called at once
        await asyncio.sleep(0.5)
        story.world.turn_clock(A_RETRY)
    await story.until("it has failed", lambda: bool(names_now(story)[PUBLISH]))
    await published(story, ("a", 3))
    await asyncio.sleep(2.0)  # a relay has read it
    await story.play_out()

    assert_arrived(story, ["b 1"])
    assert await by_status(story, MessageStatus.FAILED) == ["a 1"]
    assert await by_status(story, MessageStatus.PENDING) == ["a 2", "a 3"]
    assert names(story)[PUBLISH] == 1, f"{names(story)}"
    assert story.broker.refused["a 1"] <= RELAY_BUDGET + (not story.calm)


@scenario
async def relay_to_a_blocked_route(story: Story) -> None:
    """A refused route is blocked for all its messages, tried again, and released; no attempt is spent."""
    story.has_messages(ROUTE)
    await published(story, ("a", 1), ("a", 2), ("b", 1))

    await story.worker()
    await story.until("it is blocked", lambda: blocked(story) or bool(arrived(story)))
    await asyncio.sleep(2.0)
    story.world.turn_clock(PROBE.total_seconds())
    await story.play_out()

    assert_arrived(story, ["a 1", "a 2", "b 1"])
    assert not story.broker.refused


@scenario
async def relay_to_a_route_that_stays_blocked(story: Story) -> None:
    """A route that refuses its trial stays blocked, and is tried again later."""
    story.has_messages(ROUTE, ROUTE)
    await published(story, ("a", 1), ("a", 2))

    await story.worker()
    await story.until("it is blocked", lambda: blocked(story) or bool(arrived(story)))
    for _ in range(2):
        await asyncio.sleep(2.0)
        story.world.turn_clock(PROBE.total_seconds())
    await story.play_out()

    assert_arrived(story, ["a 1", "a 2"])
    assert not story.broker.refused


@scenario
async def relay_that_stops(story: Story) -> None:
    """A relay that stops gives its partitions up; what is not confirmed is published again by another."""
    story.has_messages(HANGS)
    await published(story, ("a", 1), ("b", 1))

    await story.worker(grace=2.0)
    await asyncio.sleep(1.0)
    story.stop()
    await story.play_out()

    assert_arrived(story, ["a 1", "b 1"])


@scenario
async def relays_that_share(story: Story) -> None:
    """Two relays divide the partitions; each message is published by one of them, unless that meets a fault."""
    story.has_messages()
    story.other_worker()

    await story.worker()
    await asyncio.sleep(7.0)
    await published(story, *A_BATCH, ("d", 1), ("e", 1))
    await story.play_out()

    serials = [f"{about} {number}" for about, number in (*A_BATCH, ("d", 1), ("e", 1))]
    assert_arrived(story, serials)
    if story.calm:
        assert sum(arrived(story).values()) == len(serials), f"{arrived(story)}"


@scenario
async def skip_and_retry(story: Story) -> None:
    """What an operator skips holds nothing back any more; what is retried has its attempts again."""
    story.has_messages(services=False)
    await dead(story, ("a", 1), ("b", 1), refusals=RELAY_BUDGET)
    await published(story, ("a", 2), ("b", 2))
    failed = {message.aggregate_id: message.id for message in await story.hold.outbox.list(FAILED)}

    async def act(app: App) -> None:
        await app.hold.outbox.skip([failed["a"]], actor="victim", reason="not needed")
        await app.hold.outbox.retry([failed["b"]], actor="victim", reason="repaired")

    await story.client(act)
    await story.hold.outbox.skip([failed["a"]], actor="people", reason="not needed")
    await story.hold.outbox.retry([failed["b"]], actor="people", reason="repaired")
    await story.play_out()

    assert_arrived(story, ["a 2", "b 1", "b 2"])


@scenario
async def replay_a_dead_message(story: Story) -> None:
    """A replay of its dead letter publishes a message again, once, and what was held back behind it."""
    story.has_messages(services=False)
    await dead(story, ("a", 1), refusals=RELAY_BUDGET)
    await published(story, ("a", 2))
    [job] = [row.id for row in story.world.auditor.jobs.values() if row.name == PUBLISH]

    async def act(app: App) -> None:
        await app.hold.retry(job)

    await story.client(unless_refused(act))
    with suppress(StateRefused):
        await story.hold.retry(job)
    await story.play_out()

    assert_completed(story, job)
    assert_arrived(story, ["a 1", "a 2"])


# Announcing.


@scenario
async def announce_ends(story: Story) -> None:
    """Each end is announced once, whatever it is, and whichever worker renders it."""
    story.has_messages()
    jobs = [await story.submit("letter", 0), await story.submit("letter", 4)]
    cancelled = await story.submit("letter", 6, delay=60.0)
    late = await story.submit("letter", 6, delay=60.0, deadline=1.0)
    await story.hold.cancel(cancelled)

    await story.worker()
    await story.play_out()

    kinds = [(jobs[0], "completed"), (jobs[1], "failed"), (cancelled, "cancelled"), (late, "timed_out")]
    for job, kind in kinds:
        assert announced(story, job, kind) == 1, f"{kind} was announced {announced(story, job, kind)} times"


@scenario
async def announce_retries(story: Story) -> None:
    """Each attempt that failed under its lease is announced once; one whose worker was lost is none of them."""
    story.has_messages()
    job = await story.submit("letter", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    retries = sum(event["id"] == job and event["kind"] == "retry" for event in story.books.events)
    assert announced(story, job, "retrying") == retries
    assert retries or not story.calm
    assert announced(story, job, "completed") == 1


@scenario
async def complete_within(story: Story) -> None:
    """A job ends with the rows of its own transaction, and is announced with them."""
    story.has_messages(services=False)
    letters_table(story)
    job = await story.submit("sign_off", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    ended = status_of(story, job) == Status.COMPLETED  # and has not cancelled itself
    assert letters(story) == ended, f"the job is {status_of(story, job)}, and there are {letters(story)} rows"
    assert announced(story, job, "completed") == ended


# Receiving.


@scenario
async def receive_requests(story: Story) -> None:
    """A request makes one job, however often it is delivered, and is acknowledged when that is stored."""
    story.has_messages()
    for number in (1, 2):
        story.broker.queue.add(request(number), f"request-{number}")
    story.broker.queue.add(request(1, sent="again"), "request-1")

    await story.worker()
    await story.until("some are received", lambda: len(story.broker.queue.acknowledged) >= 3)
    story.broker.queue.add(request(2, sent="again"), "request-2")
    await story.play_out()

    assert names(story)["handle"] == 2, f"{names(story)}"
    assert names(story)[CONSUME] == 0, f"{names(story)}"


@scenario
async def receive_what_is_refused(story: Story) -> None:
    """What cannot be read, or says something else under the same id, is one dead letter; the original stands."""
    story.has_messages()
    story.broker.queue.add(request(1), "request-1")

    await story.worker()
    await story.until("it is received", lambda: bool(story.broker.queue.acknowledged))
    story.broker.queue.add(request(1, number=2), "request-1")
    story.broker.queue.add(b"{", "request-2")
    story.broker.queue.add(b"{", "request-2")
    story.broker.queue.add(request(3), "request-3", content_type="application/x-python-serialize")
    await story.play_out()

    assert names(story)["handle"] == 1, f"{names(story)}"
    assert names(story)[CONSUME] == 3, f"{names(story)}"


@scenario
async def receive_with_a_failing_function(story: Story) -> None:
    """A request whose function fails for now is given back, and received later."""
    story.has_messages()
    story.broker.queue.add(request(1, fails=1), "request-1")

    await story.worker()
    await story.play_out()

    assert names(story)["handle"] == 1, f"{names(story)}"
    assert names(story)[CONSUME] == 0, f"{names(story)}"


# What is done, and claimed.

FAILED = MessageFilter(status=MessageStatus.FAILED)


def note(about: str, number: int, *, refusals: int = 0) -> Note:
    """Return a message."""
    return Note(serial=f"{about} {number}", about=about, refusals=refusals)


def request(which: int, *, number: int = 1, fails: int = 0, sent: str = "first") -> bytes:
    """Return the body of a request."""
    message = Request(
        serial=f"request-{which}", about="a", number=number, fails=fails, metadata={"sent": sent}
    )
    return message.model_dump_json().encode()


async def published(story: Story, *messages: tuple[str, int], refusals: int = 0) -> None:
    """Have healthy people publish messages."""
    await story.begin()
    for about, number in messages:
        await story.hold.publish(note(about, number, refusals=refusals))


async def dead(story: Story, *messages: tuple[str, int], refusals: int) -> None:
    """Have messages fail; then their relay dies."""
    await published(story, *messages, refusals=refusals)
    worker = story.other_worker()
    await story.until("they have failed", lambda: names_now(story)[PUBLISH] == len(messages))
    worker.crash()


def letters_table(story: Story) -> None:
    """Make a table of the application's own."""
    with closing(sqlite3.connect(story.world.path)) as connection:
        connection.execute("CREATE TABLE letters (number)")


def letters(story: Story) -> int:
    """Count its rows."""
    with closing(sqlite3.connect(story.world.path)) as connection:
        [rows] = connection.execute("SELECT count(*) FROM letters").fetchone()
    return int(rows)


def arrived(story: Story) -> Counter[str]:
    """Count how often each message has arrived."""
    return Counter(arrival.serial for arrival in story.broker.arrivals)


def assert_arrived(story: Story, serials: Sequence[str], *, maybe: Sequence[str] = ()) -> None:
    """These messages have arrived, and no others."""
    found = arrived(story).keys()
    assert set(serials) <= found <= {*serials, *maybe}, f"{sorted(found)} have arrived, not {serials}"


def announced(story: Story, job: str, kind: str) -> int:
    """Count the announcements of a kind that have arrived."""
    return sum(serial.startswith(job) and f" {kind} " in serial for serial in arrived(story))


def blocked(story: Story) -> bool:
    """Whether a route is blocked."""
    return story.world.auditor.message_oracle.has_blocked_routes


async def by_status(story: Story, status: MessageStatus) -> list[str]:
    """Name the messages of one state."""
    found = await story.hold.outbox.list(MessageFilter(status=status))
    return sorted(json.loads(message.payload)["serial"] for message in found)


def names(story: Story) -> Counter[str]:
    """Count the jobs by name."""
    return Counter(row["name"] for row in story.books.jobs)


def names_now(story: Story) -> Counter[str]:
    """Count the jobs by name while the story goes on."""
    return Counter(row.name for row in story.world.auditor.jobs.values())
