"""The scenarios: small stories, each around one thing that clients or workers do.

A scenario is a coroutine function with `@scenario` above it. It arranges what is there before, lets
the victim be a client or a worker, and claims what must be true in the end whatever fault the victim met,
and wherever. What must hold in every story, the auditor and `tests.simulation.promises` check besides.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from holdfast import Status
from tests.crashpoints.claims import (
    Scenarios,
    assert_all,
    assert_attempts,
    assert_calls,
    assert_completed,
    calls_for,
    cancelled_itself,
    is_refused,
    leases_of,
    reasons_of,
    row_of,
    stage_of,
    status_of,
    unless_refused,
)
from tests.crashpoints.story import ASLEEP, LEASE
from tests.simulation.jobs import POISONED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crashpoints.story import App, Story

scenario = Scenarios()

NEARLY = 0.9
"""How much of a lease is over when the victim comes to take it over: it need not wait for long."""


# Clients.


@scenario
async def submit(story: Story) -> None:
    """A job that was acknowledged exists; one that was not exists whole, or not at all."""

    async def act(app: App) -> None:
        story.acknowledged(await app.jobs.plain.submit(1))

    await story.client(act)
    await story.play_out()

    assert len(story.books.jobs) <= 1, "one submission made several jobs"
    assert_all(story, Status.COMPLETED)


@scenario
async def submit_many(story: Story) -> None:
    """Jobs that are submitted together are stored together."""

    async def act(app: App) -> None:
        story.acknowledged(*await app.jobs.blocking.submit_many([(1,), (2,), (3,)]))

    await story.client(act)
    await story.play_out()

    assert len(story.books.jobs) in (0, 3), f"{len(story.books.jobs)} of 3 jobs were stored"
    assert_all(story, Status.COMPLETED)


@scenario
async def submit_a_key_twice(story: Story) -> None:
    """However often a key is submitted, and by whom, there is one job, and it takes effect once."""
    job_ids: set[str] = set()

    async def act(app: App) -> None:
        for _ in range(2):
            handle = await app.jobs.plain.options(key="letter-7").submit(1)
            story.acknowledged(handle)
            job_ids.add(handle.id)

    await story.client(act)
    job_ids.add(await story.submit("plain", 1, key="letter-7"))
    await story.play_out()

    assert len(job_ids) == 1, f"one key stands for {job_ids}"
    assert len(story.books.jobs) == 1, "one key made several jobs"
    assert_all(story, Status.COMPLETED)


@scenario
async def submit_versions(story: Story) -> None:
    """A version stands for one job, and after a higher one a lower is refused."""
    job_ids: dict[int, str] = {}

    async def act(app: App) -> None:
        for version in (1, 2):
            handle = await app.jobs.plain.options(subject="essay", version=version, rerun=True).submit(1)
            story.acknowledged(handle)
            job_ids[version] = handle.id

    await story.client(act)
    latest = await story.submit("plain", 1, subject="essay", version=2, rerun=True)
    await story.play_out()

    assert job_ids.get(2, latest) == latest, "one version stands for two jobs"
    assert len(story.books.jobs) <= 2, "two versions made more than two jobs"
    assert_all(story, Status.COMPLETED)
    assert await is_refused(story.submit("plain", 1, subject="essay", version=1, rerun=True))


@scenario
async def cancel_a_queued_job(story: Story) -> None:
    """A job that was cancelled while it waited never runs; one whose cancellation was refused has ended."""
    job = await story.submit("plain", 1)
    answers: list[Status] = []

    async def act(app: App) -> None:
        answers.append(await app.hold.cancel(job))
        story.memory.cancelled.add(job)

    await story.client(unless_refused(act))
    await story.play_out()

    assert answers or not story.calm
    if answers:
        assert answers == [status_of(story, job)] == [Status.CANCELLED]
    if status_of(story, job) == Status.CANCELLED:
        assert not story.world.service.log, "the job was cancelled while it waited, and was run"
    else:
        assert_completed(story, job)


@scenario
async def cancel_a_running_job(story: Story) -> None:
    """A client that cancels a running job gets a true answer, and the job ends once."""
    job = await story.submit("long", 1, 2 * LEASE)
    await story.runs(job, by=story.other_worker())
    answers: list[Status] = []

    async def act(app: App) -> None:
        answers.append(await app.hold.cancel(job))

    await story.client(unless_refused(act))
    await story.play_out()

    assert answers in ([], [Status.PROCESSING])
    assert status_of(story, job) in (Status.CANCELLED, Status.COMPLETED)
    if story.calm:
        assert_all(story, Status.CANCELLED)


@scenario
async def requeue_failed(story: Story) -> None:
    """A failed job is retried once, or not at all; a retry that was acknowledged is stored."""
    job = await story.submit("doomed", 1)
    story.other_worker()
    await story.ends(job)
    answers: list[int] = []

    async def act(app: App) -> None:
        answers.append((await app.hold.retry(job)).generation)

    await story.client(act)
    await story.play_out()

    generation = row_of(story, job)["generation"]
    assert generation in (answers or (1, 2)), f"generation {generation}, acknowledged {answers}"
    assert answers or not story.ended_well
    assert_all(story, Status.FAILED)


@scenario
async def bring_back_from_the_failed_stage(story: Story) -> None:
    """A job that is retried keeps its finished stages: what they did is not done again."""
    job = await story.submit("order", 1)
    story.other_worker()
    await story.until("it is packed", lambda: bool(story.world.auditor.stages), step=0.001)
    story.world.service.lasting = 1.0
    await story.ends(job)
    story.world.service.lasting = 0.0

    async def act(app: App) -> None:
        await app.hold.retry(job)

    await story.client(act)
    await story.play_out()

    assert calls_for(story, "pack") == 1, "a finished stage ran again"
    if story.ended_well:
        assert_completed(story, job)


@scenario
async def wait_for_the_result(story: Story) -> None:
    """A caller that waits gets the result that is stored, unless the fault ended the wait itself."""
    job = await story.submit("plain", 1)
    story.other_worker()

    async def act(app: App) -> None:
        story.memory.results[job] = await app.hold.handle(job, "plain").result(timeout=60)

    await story.client(act)
    await story.play_out()

    assert job in story.memory.results or not story.ended_well
    assert_completed(story, job)


@scenario
async def submit_work_and_wait(story: Story) -> None:
    """A program that submits, works and waits in one process gets its result, or leaves its job to others."""

    async def act(app: App) -> None:
        async with app.hold.worker(slots=2, lease=LEASE):
            handle = await app.jobs.order.submit(1)
            story.acknowledged(handle)
            story.memory.results[handle.id] = await handle.result(timeout=60)

    await story.client(act)
    await story.play_out()

    assert len(story.books.jobs) <= 1
    assert story.memory.results or not story.ended_well
    assert_all(story, Status.COMPLETED)
    assert_calls(story, 2)


@scenario
async def submit_in_a_transaction(story: Story) -> None:
    """A job that is submitted in a transaction exists if and only if the rest of the transaction does."""
    await story.begin()
    with closing(sqlite3.connect(story.world.path)) as connection:
        connection.execute("CREATE TABLE letters (text)")

    async def act(app: App) -> None:
        with closing(story.own_connection()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO letters VALUES ('Dear Ann')")
            handle = await app.jobs.plain.options(within=connection).submit(1)
            connection.execute("COMMIT")
        story.acknowledged(handle)
        story.look()

    await story.client(act)
    await story.play_out()

    with closing(sqlite3.connect(story.world.path)) as connection:
        [letters] = connection.execute("SELECT count(*) FROM letters").fetchone()
    assert letters == len(story.books.jobs), f"{letters} letters, {len(story.books.jobs)} jobs"
    assert_all(story, Status.COMPLETED)


@scenario
async def open_a_new_file(story: Story) -> None:
    """The first process that opens a new file makes it ready; others find it ready, or not begun."""

    async def act(app: App) -> None:
        assert await app.hold.find() == []

    await story.client(act, new_file=True)
    job = await story.submit("plain", 1)
    await story.play_out()

    assert_completed(story, job)


# Workers.


@scenario
async def complete(story: Story) -> None:
    """A job completes once; one fault costs at most one repetition."""
    await story.submit("plain", 1)

    await story.worker()
    await story.play_out()

    assert_all(story, Status.COMPLETED)
    assert_calls(story, 1)


@scenario
async def lose_the_answer_to_a_claim(story: Story) -> None:
    """A job whose claim was committed while its answer was lost is released, and has spent no attempt."""
    job = await story.submit("plain", 1)
    story.injector.lost_answer = "store.claim"

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_attempts(story, job, 1)
    if story.calm or story.loses_an_answer_of("store.claim", "store.leased_to", "store.settle"):
        assert row_of(story, job)["attempt"] == 1, "an attempt was spent on nothing"
        assert "lease lost" not in reasons_of(story, job)


@scenario
async def complete_in_a_thread(story: Story) -> None:
    """A function that blocks is run by others if its worker meets a fault."""
    await story.submit("blocking", 1)

    await story.worker()
    await story.play_out()

    assert_all(story, Status.COMPLETED)


@scenario
async def stages(story: Story) -> None:
    """Of two stages, a fault repeats at most the one that was running."""
    await story.submit("order", 1)

    await story.worker()
    await story.play_out()

    assert_all(story, Status.COMPLETED)
    assert_calls(story, 2)


@scenario
async def go_on_at_the_second_stage(story: Story) -> None:
    """A stage that another worker finished before it died is not run again, whatever fault the next worker meets."""
    job = await story.submit("order", 1)
    await lose_a_worker(story, job, packed=True)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert calls_for(story, "pack") == 1, "a finished stage ran again"


@scenario
async def stages_side_by_side(story: Story) -> None:
    """Of three stages that run at once, a fault repeats each at most once."""
    await story.submit("fan", 1)

    await story.worker()
    await story.play_out()

    assert_all(story, Status.COMPLETED)
    assert all(calls_for(story, f"part-{part}") <= 2 for part in range(3))
    assert_calls(story, 3, repeated=3)


@scenario
async def retry(story: Story) -> None:
    """A job that fails twice is tried again when its time has come; a fault costs it one attempt at most."""
    job = await story.submit("flaky", 2)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_attempts(story, job, 3)


@scenario
async def fail(story: Story) -> None:
    """A job that cannot succeed fails once, and is not tried again."""
    job = await story.submit("doomed", 1)

    await story.worker()
    await story.play_out()

    assert_all(story, Status.FAILED)
    assert_attempts(story, job, 1)


@scenario
async def fail_in_a_stage(story: Story) -> None:
    """A stage that is refused for good fails its job, whose later stages do not begin."""
    job = await story.submit("order", 1)
    story.world.service.lasting = 1.0

    await story.worker()
    await story.play_out()

    assert_all(story, Status.FAILED)
    assert_calls(story, 1)
    assert calls_for(story, "ship") == 0
    if not cancelled_itself(row_of(story, job)):
        assert stage_of(story, job, "pack")["status"] == "failed"


@scenario
async def wait_for_its_time(story: Story) -> None:
    """A job with a delay waits for it, whatever fault its worker meets."""
    job = await story.submit("plain", 1, delay=2.0)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert row_of(story, job)["last_attempt_at"] >= row_of(story, job)["created_at"] + 2_000_000


@scenario
async def extend(story: Story) -> None:
    """A job that takes longer than a lease stays with its worker; if that meets a fault, another one takes it."""
    job = await story.submit("long", 1, 1.2 * LEASE)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert leases_of(story, job) == 1 or not story.calm
    assert_calls(story, 1)


@scenario
async def outlast_an_outage(story: Story) -> None:
    """When the store was away for longer than a lease, its worker keeps a job that runs, and one that has ended."""
    running, ended = await story.submit("long", 1, 2.5 * LEASE), await story.submit("long", 2, 0.5 * LEASE)
    await story.worker()
    await story.runs(running)
    await story.runs(ended)
    await story.works()
    for _ in range(3):  # one of them looks before the victim does when the store is back
        story.other_worker()
        await asyncio.sleep(0.3)

    story.world.store_is_away = True
    await asyncio.sleep(
        1.25 * LEASE
    )  # until the victim has just tried in vain: it is not the first that tries again
    story.world.store_is_away = False
    await story.play_out()

    assert_completed(story, running)
    assert_completed(story, ended)
    assert (leases_of(story, running), leases_of(story, ended)) == (1, 1) or not story.calm
    assert_calls(story, 2)


@scenario
async def cancel(story: Story) -> None:
    """A running job that a caller cancels ends cancelled, even if its worker dies before."""
    job = await story.submit("long", 1, 2 * LEASE)

    await story.worker()
    await story.runs(job)
    assert await story.hold.cancel(job) is Status.PROCESSING
    await story.play_out()

    assert_all(story, Status.CANCELLED)
    assert_calls(story, 0, repeated=0)


@scenario
async def reclaim(story: Story) -> None:
    """The job of a worker that died is taken over, and goes on at its second attempt."""
    job = await story.submit("plain", 1)
    await lose_a_worker(story, job)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_attempts(story, job, 2)


@scenario
async def reclaim_from_a_sleeper(story: Story) -> None:
    """A worker that wakes up after its job was taken over can write nothing for it."""
    job = await story.submit("order", 1)
    sleeper = story.other_worker()
    await story.runs(job, by=sleeper)
    sleeper.pause(ASLEEP)
    await asyncio.sleep(NEARLY * LEASE)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert leases_of(story, job) >= 2
    assert_calls(story, 3)


@scenario
async def run_a_suspect(story: Story) -> None:
    """A job that lost two workers runs under suspicion; it and its neighbour complete, whatever fault their worker meets."""
    suspected = await story.submit("plain", 1)
    for _ in range(2):
        await lose_a_worker(story, suspected)
    await story.submit("plain", 2)

    await story.worker()
    await story.play_out()

    assert_all(story, Status.COMPLETED)
    assert_attempts(story, suspected, 3)


@scenario
async def run_a_killer(story: Story) -> None:
    """A job that takes its worker down each time ends failed, and its neighbour completes."""
    killer = await story.submit("killer", 0)
    neighbour = await story.submit("long", 1, 1.0)

    await story.worker()
    await story.play_out()

    assert status_of(story, killer) == Status.FAILED
    assert_completed(story, neighbour)


@scenario
async def read_poison(story: Story) -> None:
    """A job whose stored stages take down every worker that reads them ends failed, and its neighbour completes."""
    killer = await story.submit("killer", POISONED)
    first = story.other_worker()
    await story.until("it has taken its first worker down", lambda: not first.alive)
    await asyncio.sleep(NEARLY * LEASE)
    neighbour = await story.submit("long", 1, 1.0)

    await story.worker()
    await story.play_out()

    assert status_of(story, killer) == Status.FAILED
    assert_completed(story, neighbour)


@scenario
async def submit_children(story: Story) -> None:
    """What a job submits is submitted once, however often the job is run."""
    parent = await story.submit("parent", 1)

    await story.worker()
    await story.play_out()

    names = sorted(row["name"] for row in story.books.jobs)
    all_there = status_of(story, parent) == Status.COMPLETED
    assert names == ["flaky", "parent", "plain"] or not all_there, f"there are {names}"
    assert len(set(names)) == len(names), f"there are {names}"
    assert_all(story, Status.COMPLETED)


# Workers that stop.


@scenario
async def stop_in_time(story: Story) -> None:
    """A worker that is stopped finishes the jobs that it runs, and claims no more."""
    job = await story.submit("long", 1, 2.0)

    await story.worker(grace=30)
    await story.runs(job)
    story.stop()
    await story.play_out()

    assert_completed(story, job)
    assert leases_of(story, job) == 1 or not story.calm


@scenario
async def stop_beyond_the_grace(story: Story) -> None:
    """A job that does not end within the grace time is released, with its attempt."""
    await stopped(story, grace=0.5, stop=story.stop)


@scenario
async def stop_without_waiting(story: Story) -> None:
    """A worker that is stopped twice ends at once, and releases its jobs."""

    def twice() -> None:
        story.stop()
        story.world.loop.call_later(0.3, story.stop)

    await stopped(story, grace=30, stop=twice)


@scenario
async def stop_by_cancelling(story: Story) -> None:
    """A program that is cancelled stops its worker in good order."""
    await stopped(story, grace=0.5, stop=story.cancel)


@scenario
async def stop_by_cancelling_everything(story: Story) -> None:
    """A program whose every task is cancelled ends, and its job is run by others."""
    job = await story.submit("long", 1, 1.7 * LEASE)

    await story.worker(grace=0.5)
    await story.runs(job)
    story.cancel_everything()
    await story.play_out()

    assert_completed(story, job)


async def stopped(story: Story, *, grace: float, stop: Callable[[], None]) -> None:
    """Stop a worker while a job runs that takes longer than the grace time."""
    job = await story.submit("long", 1, 1.7 * LEASE)

    await story.worker(grace=grace)
    await story.runs(job)
    stop()
    await story.play_out()

    assert_completed(story, job)
    lost = reasons_of(story, job).count("lease lost")
    assert stage_of(story, job, "rest")["attempt"] == 1 + lost, f"{lost} leases lost"
    if story.calm:
        assert reasons_of(story, job) == ["worker shut down"]


async def lose_a_worker(story: Story, job_id: str, *, packed: bool = False) -> None:
    """Let a worker die while it runs the job, perhaps after its first stage; then its lease comes near its end."""
    dead = story.other_worker()
    await story.runs(job_id, by=dead)
    if packed:
        await story.until("it is packed", lambda: bool(story.world.auditor.stages), step=0.001)
    dead.crash()
    await asyncio.sleep(NEARLY * LEASE)
