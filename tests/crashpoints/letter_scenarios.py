"""Scenarios around dead letters: repairs, replays, tickets, and the archive.

That every failed job has its letter, that letters move along their graph, and that nothing is deleted which is not
in the archive, the dead letter oracle checks at each commit of every story.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast import Status
from holdfast.core.dead_letters.letter import Cause, LetterFilter, LetterState
from holdfast.core.errors import ArchiveUnavailable
from holdfast.engine.dead_letters.ticket_notifier import LEASE
from tests import invariants
from tests.crashpoints.claims import (
    Scenarios,
    assert_all,
    assert_completed,
    calls_for,
    row_of,
    unless_refused,
)
from tests.simulation.letter_jobs import Lettering

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.operations import DeadLetterService
    from tests.crashpoints.story import App, Story

scenario = Scenarios()

ALL = LetterFilter(limit=100)
SELDOM = timedelta(seconds=5)
"""How often the dead letter services poll: what they do in between is the same each time."""

REPLAYED = Lettering(poll_interval=SELDOM)
ARCHIVED = Lettering(poll_interval=SELDOM, archives=True)
NOTIFIED_AGAIN = LEASE.total_seconds()
"""Seconds after which another worker takes over a ticket that no hook has received."""

A_TRY = 7.0
"""Seconds after which a notifier knows that no hook has received a ticket, even if the hook hangs."""

A_TURN = 61.0
"""Seconds after which it is a worker's turn to archive."""


# Repairs and replays.


@scenario
async def repair_letters(story: Story) -> None:
    """An operator takes each step with all letters, or with none; another one can do what is left."""
    story.has_letters(REPLAYED)
    jobs = await dead(story, 2)

    async def act(app: App) -> None:
        await app.hold.dead_letters.triage(jobs[0], Cause.DATA, actor="victim")
        await repair(app.hold.dead_letters, actor="victim")

    await story.client(unless_refused(act))
    await repair(story.hold.dead_letters, actor="people")
    await story.play_out()

    for job in jobs:
        assert_completed(story, job)
        assert row_of(story, job)["generation"] == 2, "a letter was replayed twice"


@scenario
async def replay_with_a_child(story: Story) -> None:
    """A job goes on with the one that it had submitted: that comes back once, and there is no second one."""
    story.has_letters(REPLAYED)
    [job] = await dead(story, 1, "errand")
    [child] = [row["id"] for row in (await invariants.read_world(story.world.url)).jobs if row["id"] != job]
    await story.hold.retry(job)

    await story.worker()
    await story.play_out()

    assert len(story.books.jobs) == 2, "it was submitted again"
    assert_completed(story, job)
    assert row_of(story, child)["generation"] <= 2, "it was brought back twice"
    if row_of(story, job)["status"] == Status.COMPLETED:  # and was not cancelled before it came to that
        assert_completed(story, child)


@scenario
async def replay_behind_a_canary(story: Story) -> None:
    """Whichever worker advances a plan, each letter is replayed once, those behind the canary when that has completed."""
    story.has_letters(REPLAYED, services=True)
    jobs = await dead(story, 3)
    await repair(story.hold.dead_letters, actor="people")

    await story.worker()
    await story.play_out()

    for job in jobs:
        assert_completed(story, job)
        assert row_of(story, job)["generation"] == 2, "a letter was replayed twice"
    states = {letter.state for letter in await story.hold.dead_letters.list(ALL)}
    assert states == {LetterState.VERIFIED}, f"the letters are {states}"


@scenario
async def replay_automatically(story: Story) -> None:
    """A job that allows it is replayed automatically, once, from where it failed."""
    story.has_letters(Lettering(poll_interval=SELDOM, replays_after=0.0), services=True)
    job = await story.submit("mailing", 1)
    worker = story.other_worker()
    await story.ends(job)
    worker.crash()

    await story.worker()
    await story.until("it goes on", lambda: story.seen(job).generation == 2)
    await story.play_out()

    assert_completed(story, job)
    assert row_of(story, job)["generation"] == 2, "a letter was replayed twice"
    assert calls_for(story, "stamp") == 1, "a finished stage ran again"


# Tickets.


@scenario
async def notify_of_tickets(story: Story) -> None:
    """A ticket counts as delivered when a hook has received it, or another one of its group, and not before."""
    story.has_letters(Lettering(poll_interval=SELDOM, tickets_per="group"), services=True)
    recipient = story.world.auditor.dead_letter_oracle.recipient
    assert recipient is not None
    recipient.failing = 1.0
    story.timeout = 3 * NOTIFIED_AGAIN
    await dead(story, 2, "doomed")
    await dead(story, 1)
    await asyncio.sleep(NOTIFIED_AGAIN)
    recipient.failing = 0.0

    await story.worker()
    await story.play_out()

    assert len(recipient.received) >= 2, "the hook has to receive a ticket of each group"


@scenario
async def notify_a_failing_hook(story: Story) -> None:
    """A ticket in a worker's log does not count as delivered, and workers that take over do not log it endlessly."""
    story.has_letters(Lettering(poll_interval=SELDOM), services=True)
    recipient = story.world.auditor.dead_letter_oracle.recipient
    assert recipient is not None
    recipient.failing = 1.0
    story.timeout = 4 * NOTIFIED_AGAIN
    await dead(story, 1, "doomed")

    await story.worker()
    await asyncio.sleep(A_TRY)
    story.stop()
    recipient.failing = 0.0
    await story.play_out()

    assert recipient.received, "the hook has to receive it"


# The archive.


@scenario
async def archive_letters(story: Story) -> None:
    """Archiving deletes what is in the archive unchanged, and nothing else."""
    story.has_letters(ARCHIVED)
    jobs = await dead(story, 3, "doomed")

    async def act(app: App) -> None:
        await app.hold.dead_letters.archive(beyond=1)

    async def meanwhile() -> None:
        """Take a step with one of them, should the victim have fallen asleep over it."""
        await asyncio.sleep(2.0)
        await story.hold.dead_letters.triage(ALL, Cause.CODE, actor="people")

    step = asyncio.create_task(meanwhile())
    await story.client(unless_unavailable(act))
    await step
    if story.calm:
        assert len(away(story)) == 2
    await brought_back(story)
    await story.play_out()

    assert len(jobs) == len(story.books.jobs)
    assert_all(story, Status.FAILED)


@scenario
async def archive_in_turn(story: Story) -> None:
    """Workers take turns at archiving; one that meets a fault leaves the letters, or has archived them."""
    story.has_letters(
        Lettering(poll_interval=SELDOM, archives=True, kept_for=timedelta(seconds=1), letters_a_day=0),
        services=True,
    )
    jobs = await dead(story, 2, "doomed")
    await asyncio.sleep(A_TURN)

    await story.worker()
    await asyncio.sleep(2.0)
    if story.calm:
        assert len(away(story)) == 2
    await story.play_out()
    await brought_back(story)

    assert len(jobs) == len(story.books.jobs)
    assert_all(story, Status.FAILED)


@scenario
async def restore_letters(story: Story) -> None:
    """What is restored is whole, or still in the archive: a second try brings it back."""
    story.has_letters(ARCHIVED)
    jobs = await dead(story, 2, "doomed")
    await story.hold.dead_letters.archive(older_than="0.1s")
    assert sorted(away(story)) == sorted(jobs)

    async def act(app: App) -> None:
        await app.hold.dead_letters.restore(LetterFilter(job_ids=tuple(jobs)))

    await story.client(unless_unavailable(act))
    if story.ended_well and story.calm:
        assert not away(story), "restored, and not there"
    await brought_back(story)
    await story.play_out()

    assert len(jobs) == len(story.books.jobs)
    assert_all(story, Status.FAILED)


# What is done, and claimed.


async def dead(story: Story, number: int, job: str = "plain") -> list[str]:
    """Have jobs fail for a reason that lasts until they have; then their worker dies."""
    story.world.service.lasting = 1.0
    jobs = [await story.submit(job, each) for each in range(number)]
    worker = story.other_worker()
    for job_id in jobs:
        await story.ends(job_id)
    worker.crash()
    story.world.service.lasting = 0.0
    return jobs


async def repair(letters: DeadLetterService, *, actor: str) -> None:
    """Take all steps with all letters that are left."""
    await letters.triage(ALL, Cause.CONFIGURATION, actor=actor)
    await letters.remediate(ALL, "the service answers again", actor=actor)
    planned = await letters.plan(ALL, safe="every call has a key", actor=actor, canary=1, pace=2)
    if planned.token is not None:
        await letters.replay(planned.token, actor=actor)


def away(story: Story) -> list[str]:
    """Name the jobs that are in the archive alone."""
    return list(story.world.auditor.dead_letter_oracle.away)


async def brought_back(story: Story) -> None:
    """Have healthy people restore all that is in the archive alone; the dead letter oracle compares it with what it was."""
    for job_id in away(story):
        await story.hold.dead_letters.restore(LetterFilter(job_ids=(job_id,)))
    assert not away(story), f"deleted, and not restored: {away(story)}"
    story.books = await invariants.read_world(story.world.url)


def unless_unavailable(act: Callable[[App], Awaitable[None]]) -> Callable[[App], Awaitable[None]]:
    """Let a client accept that the archive is unavailable."""

    async def acting(app: App) -> None:
        try:
            await act(app)
        except ArchiveUnavailable:
            return

    return acting
