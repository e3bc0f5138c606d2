"""Scenarios in which time matters: deadlines and late results, sleeping and waiting, ticks, and queues that rest."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast import Status
from holdfast.errors import StateRefused
from tests.crashpoints.claims import (
    Scenarios,
    assert_all,
    assert_calls,
    assert_completed,
    assert_end,
    cancelled_itself,
    row_of,
    status_of,
    unless_refused,
)
from tests.simulation.jobs import SIDE
from tests.simulation.timed_jobs import GO
from tests.simulation.timing_oracle import EVERY, SECOND, TICK

if TYPE_CHECKING:
    from tests.crashpoints.story import App, Story

scenario = Scenarios()


# Deadlines.


@scenario
async def expire_while_queued(story: Story) -> None:
    """A job whose deadline passes while it waits for its time has timed out, and was never run."""
    job = await story.submit("plain", 1, deadline=0.7, delay=30)

    await story.worker()
    await story.play_out()

    assert_timed_out(story, job)
    assert_calls(story, 0, repeated=0)


@scenario
async def expire_while_running(story: Story) -> None:
    """A job that is stopped at its deadline has timed out, and leaves no result, whichever process notices that."""
    job = await story.submit("brief", 1, 30.0, deadline=1.2)

    await story.worker()
    await story.play_out()

    assert_timed_out(story, job)
    assert row_of(story, job)["late_result"] is None


@scenario
async def come_late_after_the_sweep(story: Story) -> None:
    """A result that comes after its job has timed out is kept once, and changes nothing else."""
    await late(story, seconds=1.4, deadline=0.5)


@scenario
async def come_late_before_the_sweep(story: Story) -> None:
    """A result that comes after the deadline, which no process has noticed yet, makes the job time out."""
    await late(story, seconds=0.5, deadline=0.99)


async def late(story: Story, *, seconds: float, deadline: float) -> None:
    """Run a job that goes on after its deadline; it takes twice *seconds*."""
    job = await story.submit("dogged", 1, seconds, deadline=deadline)

    await story.worker()
    await story.play_out()

    assert_timed_out(story, job)
    if story.calm:
        assert row_of(story, job)["late_result"], "the late result was not kept"


@scenario
async def complete_before_the_deadline(story: Story) -> None:
    """A job that meets a fault may miss its deadline; then it has timed out, and else it has completed."""
    job = await story.submit("brief", 1, 0.3, deadline=2.0)

    await story.worker()
    await story.play_out()

    if row_of(story, job)["timed_out_at"] is not None:
        assert not story.calm
    else:
        assert_completed(story, job)


@scenario
async def accept_a_late_result(story: Story) -> None:
    """Accepting a late result completes the job and starts what follows, once, or does neither."""
    job = await story.submit("dogged", 1, 0.5, deadline=0.7)
    story.other_worker()
    await story.until("its result is there", lambda: story.seen(job).late_result is not None)

    async def act(app: App) -> None:
        for _ in range(2):
            await app.hold.accept_late(job, actor="victim")
            story.memory.accepted.append(job)

    await story.client(unless_refused(act))
    await story.play_out()

    accepted = status_of(story, job) == Status.COMPLETED
    assert accepted or not story.calm
    assert accepted or not story.memory.accepted, "acknowledged as accepted, and it was not"
    assert [row["name"] for row in story.books.jobs].count("recompute") == accepted


@scenario
async def cancel_at_the_deadline(story: Story) -> None:
    """Of a cancellation and a deadline that meet, one is the job's end, and the answer to the caller is true."""
    job = await story.submit("plain", 1, deadline=1.0, delay=30)
    story.other_worker()
    await asyncio.sleep(0.999)
    answers: list[Status] = []

    async def act(app: App) -> None:
        answers.append(await app.hold.cancel(job))

    await story.client(unless_refused(act))
    await story.play_out()

    if status_of(story, job) != Status.CANCELLED:
        assert_timed_out(story, job)
        assert not answers, "acknowledged as cancelled, and it has timed out"


# Waits.


@scenario
async def sleep(story: Story) -> None:
    """A job sleeps as long as it should, whatever fault its worker meets."""
    job = await story.submit("sleeper", 1, 0.8, 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    row = row_of(story, job)
    if not cancelled_itself(row):
        assert row["finished_at"] >= row["created_at"] + 0.8 * SECOND


@scenario
async def wait_for_signals(story: Story) -> None:
    """A job receives the signals it waits for, and those that came before it waited, each once and in order."""
    job = await story.submit("listener", 1, None)

    await story.worker()
    await story.until("it waits", lambda: bool(story.seen(job).waiting) or story.seen(job).ended)
    with suppress(StateRefused):  # its own code was cancelled, and it has failed
        await story.hold.signal(job, GO, "word 1")
        await story.hold.signal(job, GO, "word 2")
    await story.play_out()

    assert_completed(story, job)
    assert_received(story, job, "word 1", "word 2")


@scenario
async def signal_too_early(story: Story) -> None:
    """A signal that came before the job first ran is not lost."""
    job = await story.submit("listener", 1, 20.0)
    for word in ("word 1", "word 2"):
        await story.hold.signal(job, GO, word)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_received(story, job, "word 1", "word 2")


@scenario
async def send_a_signal(story: Story) -> None:
    """A signal is stored with the job once, or not at all; one that was acknowledged is stored."""
    job = await story.submit("listener", 1, None)
    story.other_worker()
    await story.until("it waits", lambda: bool(story.seen(job).waiting))

    async def act(app: App) -> None:
        await app.hold.signal(job, GO, "word 1")
        story.memory.signalled["word 1"] = job

    await story.client(act)
    for word in ("word 2", "word 3"):
        with suppress(StateRefused):  # it has received enough
            await story.hold.signal(job, GO, word)
    await story.play_out()

    assert_completed(story, job)
    if story.memory.signalled:
        assert_received(story, job, "word 1", "word 2")


@scenario
async def wait_for_children(story: Story) -> None:
    """A job that waits for two others completes once, with what both returned."""
    job = await story.submit("family", 4)  # the child that fails at first succeeds at once with this number

    await story.worker()
    await story.play_out()

    assert len(story.books.jobs) <= 3, "there are too many children"
    assert_completed(story, job)


# Ticks, and queues that rest.


@scenario
async def tick(story: Story) -> None:
    """A tick is submitted once, by whichever worker runs; the auditor counts them."""
    story.world.recurs = True
    await asyncio.sleep(EVERY / SECOND - (story.world.clock.now().timestamp() + 0.6) % (EVERY / SECOND))

    await story.worker()
    await story.until(
        "a tick has come", lambda: any(row.name == TICK for row in story.world.auditor.jobs.values())
    )
    await story.play_out()

    assert any(row["name"] == TICK and row["status"] == Status.COMPLETED for row in story.books.ended)


@scenario
async def pause_a_queue(story: Story) -> None:
    """Once a pause is acknowledged, what is submitted to the queue waits until it is resumed."""
    story.queues = ["default", SIDE]
    answers: list[bool] = []

    async def act(app: App) -> None:
        answers.append(await app.hold.queues.pause(SIDE, actor="victim"))

    story.other_worker()
    await story.client(act)
    await asyncio.sleep(2.0)  # the worker knows of it by now
    job = await story.submit("plain", 1, queue=SIDE)
    await asyncio.sleep(2.0)
    assert not answers or story.seen(job).token == 0, "a job was claimed from a paused queue"
    await story.hold.queues.resume(SIDE, actor="people")
    await story.play_out()

    assert answers in ([], [True])
    assert_completed(story, job)


@scenario
async def resume_a_queue(story: Story) -> None:
    """Once it is acknowledged that a queue is resumed, its jobs are run."""
    story.queues = ["default", SIDE]
    job = await story.submit("plain", 1, queue=SIDE)
    await story.hold.queues.pause(SIDE, actor="people")
    story.other_worker()
    answers: list[bool] = []

    async def act(app: App) -> None:
        answers.append(await app.hold.queues.resume(SIDE, actor="victim"))

    await story.client(act)
    if not answers:
        await story.hold.queues.resume(SIDE, actor="people")
    await story.play_out()

    assert answers in ([], [True])
    assert_completed(story, job)


@scenario
async def work_beside_a_paused_queue(story: Story) -> None:
    """A worker takes nothing from a queue that was paused before it began, also if it cannot ask at first."""
    story.queues = ["default", SIDE]
    rests = await story.submit("plain", 1, queue=SIDE)
    await story.hold.queues.pause(SIDE, actor="people")
    job = await story.submit("plain", 2)

    await story.worker()
    await story.ends(job)
    assert story.seen(rests).token == 0, "a job was claimed from a paused queue"
    await story.hold.queues.resume(SIDE, actor="people")
    await story.play_out()

    assert_all(story, Status.COMPLETED)


# What is claimed.


def assert_timed_out(story: Story, job_id: str) -> None:
    """The job has timed out, and says so."""
    row = row_of(story, job_id)
    assert_end(story, row, Status.FAILED)
    if not cancelled_itself(row):
        assert json.loads(row["failure"])["error_class"] == "TIMEOUT", row["failure"]
        assert row["timed_out_at"] >= row["deadline_at"]


def assert_received(story: Story, job_id: str, *words: str) -> None:
    """The job has returned these words."""
    row: dict[str, Any] = row_of(story, job_id)
    if not cancelled_itself(row):
        received = json.loads(row["result"])[:-1]
        assert received == list(words), f"it received {received}"
