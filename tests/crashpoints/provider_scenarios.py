"""Scenarios around providers: breakers that open and close, trials, held jobs, overrides, limits and backups."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast import Status
from holdfast.errors import StateRefused
from tests.crashpoints.claims import (
    Scenarios,
    assert_all,
    assert_completed,
    cancelled_itself,
    row_of,
    stage_of,
    status_of,
    unless_refused,
)
from tests.simulation.processes import Fault
from tests.simulation.provided_jobs import BACKED, MODEL, RATED, SHARED, SPARE, Providing

if TYPE_CHECKING:
    from tests.crashpoints.story import App, Story

scenario = Scenarios()

TOUCHY = Providing(trials=1, cooldown=0.5, minimum=1)
"""Each failed call opens its breaker, and one trial closes it."""


# Breakers and trials.


@scenario
async def open_and_try(story: Story) -> None:
    """A call that fails opens the breaker; a trial that fails costs no attempt; one that succeeds closes it."""
    story.has_providers(TOUCHY, {MODEL: ["500", "503"]})
    job = await story.submit("ask", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_tries(story, job, "ask", 2)
    assert_called(story, MODEL, 3)


@scenario
async def try_with_concurrent_calls(story: Story) -> None:
    """Of a job's concurrent calls one becomes the trial; that the others are refused does not stop it."""
    story.has_providers(TOUCHY, {SHARED: ["500"]})
    job = await story.submit("crowd", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)


# Held jobs.


@scenario
async def hold_a_refused_job(story: Story) -> None:
    """A job that is refused makes no call and spends no attempt; it is released when calls are allowed again."""
    story.has_providers(TOUCHY)
    job = await story.submit("ask", 1)
    await story.hold.providers.pause(MODEL, actor="people")

    await story.worker()
    await story.until("it is held", lambda: story.seen(job).held_by is not None or story.seen(job).ended)
    assert not story.world.auditor.provider_oracle.calls, "a provider was called that is paused"
    await story.hold.providers.resume(MODEL, actor="people")
    await story.play_out()

    assert_completed(story, job)
    assert_tries(story, job, "ask", 1)
    assert_called(story, MODEL, 1)


@scenario
async def let_out_held_jobs(story: Story) -> None:
    """Held jobs are released; a step that was noted and not taken delays them, and nothing else."""
    story.has_providers(TOUCHY)
    await story.hold.providers.pause(MODEL, actor="people")
    jobs = [await story.submit("ask", number) for number in range(2)]
    await held(story, *jobs)
    await story.hold.providers.resume(MODEL, actor="people")

    await story.worker()
    await story.play_out()

    assert_all(story, Status.COMPLETED)
    for job in jobs:
        assert_tries(story, job, "ask", 1)


@scenario
async def cancel_a_held_job(story: Story) -> None:
    """A held job that is cancelled is never run again."""
    story.has_providers(TOUCHY)
    await story.hold.providers.pause(MODEL, actor="people")
    job = await story.submit("ask", 1)
    await held(story, job)
    answers: list[Status] = []

    async def act(app: App) -> None:
        answers.append(await app.hold.cancel(job))
        story.memory.cancelled.add(job)

    await story.client(unless_refused(act))
    if not answers:
        await story.hold.providers.resume(MODEL, actor="people")
    await story.play_out()

    assert answers in ([], [Status.CANCELLED])
    if answers:
        assert_called(story, MODEL, 0)
    else:
        assert status_of(story, job) in (Status.CANCELLED, Status.COMPLETED)


# Overrides.


@scenario
async def pause_a_provider(story: Story) -> None:
    """Once a pause is acknowledged, the provider is not called until it is resumed."""
    story.has_providers(TOUCHY)
    answers: list[str] = []

    async def act(app: App) -> None:
        await app.hold.providers.pause(MODEL, actor="victim")
        answers.append(MODEL)

    story.other_worker()
    await story.client(act)
    job = await story.submit("ask", 1)
    await asyncio.sleep(2.0)
    if answers:
        assert story.seen(job).held_by == MODEL
        assert not story.world.auditor.provider_oracle.calls, "a provider was called that is paused"
    with suppress(StateRefused):
        await story.hold.providers.resume(MODEL, actor="people")
    await story.play_out()

    assert_completed(story, job)


@scenario
async def resume_and_probe_a_provider(story: Story) -> None:
    """A client that has a paused provider probed, and resumes it, releases the held jobs."""
    story.has_providers(TOUCHY)
    await story.hold.providers.pause(MODEL, actor="people")
    job = await story.submit("ask", 1)
    await held(story, job)

    async def act(app: App) -> None:
        await app.hold.providers.probe(MODEL, actor="victim")
        await app.hold.providers.resume(MODEL, actor="victim")

    await story.client(unless_refused(act))
    with suppress(StateRefused):
        await story.hold.providers.resume(MODEL, actor="people")
    await story.play_out()

    assert_completed(story, job)
    assert_called(story, MODEL, 1)


# Limits.


@scenario
async def call_within_a_rate(story: Story) -> None:
    """Moments that a dead worker had reserved are lost, and no worker calls more often for it."""
    story.has_providers(TOUCHY)
    jobs = [await story.submit("dialogue", number) for number in (1, 2)]

    await story.worker()
    await story.play_out()

    for job in jobs:
        assert_completed(story, job)
    assert_called(story, RATED, 2, repeated=2)


@scenario
async def call_within_a_concurrency(story: Story) -> None:
    """The share of a dead worker goes back to the others."""
    story.has_providers(TOUCHY)
    job = await story.submit("crowd", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_called(story, SHARED, 3, repeated=3)


@scenario
async def call_for_several_customers(story: Story) -> None:
    """A permit from the limits of a key is given once, and expires if its worker dies."""
    story.has_providers(replace(TOUCHY, keyed=True))
    job = await story.submit("crowd", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_called(story, SHARED, 3, repeated=3)


# Backups.


@scenario
async def call_a_backup(story: Story) -> None:
    """Where a provider is open, its backup is called."""
    story.has_providers(TOUCHY)
    await story.hold.providers.open(BACKED, actor="people")
    job = await story.submit("backed", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_called(story, BACKED, 0)
    assert_called(story, SPARE, 1)


@scenario
async def call_a_backup_after_the_last_attempt(story: Story) -> None:
    """A backup is called within the attempt that the provider has refused for good."""
    story.has_providers(TOUCHY, {BACKED: ["402"]})
    job = await story.submit("backed", 1)

    await story.worker()
    await story.play_out()

    assert_completed(story, job)
    assert_tries(story, job, "backed", 1)
    assert_called(story, SPARE, 1)


# What is done, and claimed.


async def held(story: Story, *jobs: str) -> None:
    """Have a healthy worker find that these jobs are to be held; then it dies."""
    worker = story.other_worker()
    await story.until("they are held", lambda: all(story.seen(job).held_by for job in jobs))
    worker.crash()


def assert_tries(story: Story, job_id: str, stage: str, number: int) -> None:
    """The stage was done in this attempt; in a story with a fault in one more."""
    if not cancelled_itself(row_of(story, job_id)):
        attempt = stage_of(story, job_id, stage)["attempt"]
        allowed = (number,) if story.calm else (number, number + 1)
        assert attempt in allowed, f"the stage was done in attempt {attempt}, not in {allowed}"


def assert_called(story: Story, provider: str, number: int, *, repeated: int = 1) -> None:
    """The provider was called this often; in a story with a fault no more than some calls were repeated."""
    calls = sum(call.provider == provider for call in story.world.auditor.provider_oracle.calls)
    itself = story.injects(Fault.CANCEL) and any(cancelled_itself(row) for row in story.books.jobs)
    fits = calls == number if story.calm else calls <= number + (repeated if number else 0)
    assert fits or itself, f"{provider} was called {calls} times, for {number}"
