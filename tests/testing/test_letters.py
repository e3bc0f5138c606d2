"""Dead letters in a user's simulation: from failure to verified replay, in virtual time, and nothing leaves the test."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import AutoReplay, Backoff, Holdfast, Retention, Retryable, Status
from holdfast.operations import Ticket
from holdfast.testing import Simulation, simulated

hold = Holdfast(
    "sqlite:///never-made.db",
    attempts=2,
    backoff=Backoff.none(),
    archive="never-made-archive",
    retention=Retention(most_letters=1),
)
broken = [True]
tickets: list[Ticket] = []


@hold.job("grade")
async def grade(number: int) -> int:
    return _graded(number)


@hold.job("replayable", auto_replay=AutoReplay(safe="grading twice does no harm"))
async def replayable(number: int) -> int:
    return _graded(number)


@hold.on_ticket
def remember(ticket: Ticket) -> None:
    tickets.append(ticket)


def _graded(number: int) -> int:
    if broken[0]:
        raise Retryable("no answer")
    return number


@pytest.fixture(autouse=True)
def all_begins_anew() -> Iterator[None]:
    broken[0] = True
    tickets.clear()
    yield
    assert not Path("never-made-archive").exists()
    assert not os.path.exists("never-made.db")


@simulated(hold)
async def test_a_failed_job_has_a_ticket_and_can_be_replayed(sim: Simulation) -> None:
    job = await grade.submit(7)
    await sim.advance("10m")
    assert [ticket.job_id for ticket in tickets] == [job.id]
    broken[0] = False

    await hold.dead_letters.triage(job.id, "transient", actor="ada")
    await hold.dead_letters.remediate(job.id, "it answers", actor="ada")
    plan = await hold.dead_letters.plan(job.id, safe="it is only read", actor="ada")
    assert plan.token is not None
    await hold.dead_letters.replay(plan.token, actor="ada")
    await sim.advance("1m")

    assert (await hold.read(job.id)).status is Status.COMPLETED
    assert (await hold.dead_letters.show(job.id)).letter.state == "verified"


@simulated(hold)
async def test_a_job_that_allows_it_is_replayed_automatically(sim: Simulation) -> None:
    job = await replayable.submit(7)
    await sim.advance("1m")
    assert (await hold.read(job.id)).status is Status.FAILED
    broken[0] = False

    await sim.advance("20m")

    assert (await hold.read(job.id)).status is Status.COMPLETED


@simulated(hold)
async def test_the_archive_of_a_simulation_is_gone_with_it(sim: Simulation) -> None:
    jobs = [await grade.submit(number) for number in range(3)]
    await sim.advance("1m")

    assert await hold.dead_letters.archive() == 2
    assert [letter.job_id for letter in await hold.dead_letters.list()] == [jobs[-1].id]
    assert await hold.dead_letters.restore(jobs[0].id) == ([jobs[0].id], {})


@simulated(hold)
async def test_a_letter_that_is_never_replayed_costs_no_time(sim: Simulation) -> None:
    await grade.submit(7)
    await sim.advance("1m")
    began = time.process_time()

    await sim.advance("365d")

    assert time.process_time() - began < 30, "polling every few seconds for a year takes hours"
