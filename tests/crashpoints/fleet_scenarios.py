"""Scenarios around fleets: jobs are dispatched, and run in the processes of a Celery or arq worker.

That a fleet has no more dispatches than it may, that each lease belongs to one process, and that an attempt is spent by
a run alone, the auditor checks at each commit of every story.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast import Status
from tests.crashpoints.claims import Scenarios, assert_all, assert_completed
from tests.simulation.jobs import SIDE
from tests.simulation.simulated_fleet import LOST, TWICE, UNCONFIRMED

if TYPE_CHECKING:
    from tests.crashpoints.story import Story

scenario = Scenarios()


@scenario
async def dispatch(story: Story) -> None:
    """Ready jobs are dispatched, whatever happens to the worker that dispatches them."""
    story.has_fleet(dispatches=True)
    for number in range(6):  # more than the fleet may have at a time
        await story.submit("plain", number, queue=SIDE)

    story.other_fleet()
    await story.worker()
    await story.play_out()

    assert_all(story, Status.COMPLETED)


@scenario
async def dispatch_again(story: Story) -> None:
    """A dispatch that got lost, or was not confirmed, is sent again."""
    story.has_fleet(LOST, UNCONFIRMED, dispatches=True)
    for number in range(2):
        await story.submit("plain", number, queue=SIDE)

    story.other_fleet()
    await story.worker()
    await story.play_out()

    assert_all(story, Status.COMPLETED)


@scenario
async def run_dispatched(story: Story) -> None:
    """A dispatched job runs to its end, and its stages once, whatever happens to the process that runs it."""
    story.has_fleet()
    job = await story.submit("order", 1, queue=SIDE)

    story.other_worker()
    await story.runs_dispatched()
    await story.play_out()

    assert_completed(story, job)


@scenario
async def retry_dispatched(story: Story) -> None:
    """A job that fails in a fleet is dispatched again when it is due."""
    story.has_fleet()
    job = await story.submit("flaky", 1, queue=SIDE)

    story.other_worker()
    await story.runs_dispatched()
    await story.play_out()

    assert_completed(story, job)


@scenario
async def run_what_is_dispatched_twice(story: Story) -> None:
    """Of two dispatches of a job one runs it, and the other does nothing."""
    story.has_fleet(None, TWICE, TWICE, slots=3)  # while the first is claimed, the two of the second arrive
    jobs = [await story.submit("plain", number, queue=SIDE) for number in range(3)]

    story.other_worker()
    await story.runs_dispatched()
    await story.play_out()

    for job in jobs:
        assert_completed(story, job)


@scenario
async def receive_a_dispatch_of_a_running_job(story: Story) -> None:
    """A dispatch that arrives while its job runs does nothing: the process that runs it is alive."""
    story.has_fleet()
    job = await story.submit("long", 1, 5.0, queue=SIDE)
    story.other_worker()

    await story.runs_dispatched()
    await story.until("it runs", lambda: story.seen(job).status == "processing" or story.seen(job).ended)
    story.fleet.redeliver(job)
    await story.play_out()

    assert_completed(story, job)


@scenario
async def receive_late_dispatches(story: Story) -> None:
    """A dispatch that arrives while its job is parked, or has ended, does nothing."""
    story.has_fleet()
    job = await story.submit("flaky", 2, queue=SIDE)
    story.other_worker()

    await story.runs_dispatched()
    parked = lambda: story.seen(job).retry_after is not None or story.seen(job).ended  # noqa: E731
    await story.until("it is parked", parked, step=0.01)
    story.fleet.redeliver(job)
    await story.ends(job)
    story.fleet.redeliver(job)
    await story.play_out()

    assert_completed(story, job)


@scenario
async def receive_a_dispatch_of_a_paused_queue(story: Story) -> None:
    """A job that was dispatched before its queue was paused is not run until that is resumed."""
    story.has_fleet()
    job = await story.submit("plain", 1, queue=SIDE)
    await story.hold.queues.pause(SIDE, actor="people")
    story.other_worker()
    story.fleet.redeliver(job)

    await story.runs_dispatched()
    await asyncio.sleep(1.0)
    assert story.seen(job).status == "queued", "a job of a paused queue was run"
    await story.hold.queues.resume(SIDE, actor="people")
    await story.play_out()

    assert_completed(story, job)


@scenario
async def take_over_from_a_dead_process(story: Story) -> None:
    """The job of a process of the fleet that has died runs again when its dispatch is delivered again."""
    story.has_fleet()
    job = await story.submit("long", 1, 1.0, queue=SIDE)
    story.other_worker()
    dead = story.other_fleet()
    await story.runs(job, by=dead)
    dead.crash()
    await asyncio.sleep(0.01)  # what it had begun at this moment is over
    story.fleet.redeliver(job)

    await story.runs_dispatched()
    await story.play_out()

    assert_completed(story, job)


@scenario
async def stop_a_process_of_a_fleet(story: Story) -> None:
    """A process of the fleet that is stopped finishes its job, or releases it for another one."""
    story.has_fleet()
    job = await story.submit("long", 1, 5.0, queue=SIDE)
    story.other_worker()

    await story.runs_dispatched(grace=1.0)
    await story.until("it runs", lambda: story.seen(job).status == "processing" or story.seen(job).ended)
    story.stop()
    await story.play_out()

    assert_completed(story, job)
