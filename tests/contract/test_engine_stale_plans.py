"""A plan is good for what its dry run has seen; when that is over, nothing is replayed by it."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import Holdfast, JobFunction
from holdfast.core.dead_letters.replay_plan import Phase
from holdfast.errors import PlanStale
from holdfast.operations import LetterFilter, LetterState
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import (
    all_failed,
    failed,
    letter_of,
    move_plans,
    opened,
    planned,
    replayed,
    two_stages,
)
from tests.contract.services import Service, down

HOUR = timedelta(hours=1)


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger, code_version="1") as made:
        yield made


@pytest.fixture
def review(hold: Holdfast, service: Service) -> JobFunction[[int], int]:
    """A job whose service is down."""
    service.error = down()
    return two_stages(hold, Service(), service)


@pytest.mark.clause("OPS-1")
async def test_a_letter_that_has_changed_since_makes_its_plan_stale(
    hold: Holdfast, review: JobFunction[[int], int]
) -> None:
    async with hold.worker(poll=0.05):
        first, second = await all_failed(hold, [await review.submit(number) for number in range(2)])
    token = await planned(hold)
    await hold.dead_letters.triage(first, "data", actor="bert")

    with pytest.raises(PlanStale, match=f"1 of the 2 letters of plan {token} changed since; plan again"):
        await hold.dead_letters.replay(token, actor="ann")
    await move_plans(hold)

    states = [(await letter_of(hold, job_id)).state for job_id in (first, second)]
    assert states == [LetterState.TRIAGED, LetterState.VALIDATED]


@pytest.mark.clause("OPS-1")
async def test_a_letter_that_is_planned_anew_belongs_to_the_newer_plan(
    hold: Holdfast, review: JobFunction[[int], int]
) -> None:
    job_id = await failed(hold, review, 1)
    old = await planned(hold, job_id)
    new = (await hold.dead_letters.plan(job_id, safe="asked again", actor="bert")).token
    assert new is not None

    with pytest.raises(PlanStale, match="changed since; plan again"):
        await hold.dead_letters.replay(old, actor="ann")
    assert (await hold.dead_letters.replay(new, actor="ann")).plan.is_running


@pytest.mark.clause("OPS-1")
async def test_a_plan_is_good_for_an_hour_by_the_stores_clock(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock
) -> None:
    job_id = await failed(hold, review, 1)
    token = await planned(hold, job_id)
    await clock.advance(HOUR - timedelta(minutes=5))
    await clock.advance(timedelta(minutes=6))

    with pytest.raises(PlanStale, match="was made more than an hour ago; plan again"):
        await hold.dead_letters.replay(token, actor="ann")

    assert (await letter_of(hold, job_id)).replays == 0
    again = (await hold.dead_letters.plan(job_id, safe="asked again", actor="ann")).token
    assert again is not None
    await clock.advance(HOUR - timedelta(minutes=5))
    assert (await hold.dead_letters.replay(again, actor="ann")).plan.is_running


@pytest.mark.clause("OPS-1")
async def test_a_plan_is_good_for_the_version_of_the_code_that_made_it(
    hold: Holdfast, review: JobFunction[[int], int], database: Database, logger: Logger
) -> None:
    token = await planned(hold, await failed(hold, review, 1))

    async with opened(database, logger, code_version="2") as later:
        with pytest.raises(PlanStale, match="was made with version 1 of the code, and this is 2; plan again"):
            await later.dead_letters.replay(token, actor="ann")

    assert (await hold.dead_letters.progress(token)).plan.phase is Phase.MADE


@pytest.mark.clause("OPS-1")
async def test_a_token_that_is_unknown_or_whose_plan_is_over_is_refused(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    token = await planned(hold, await failed(hold, review, 1))
    unknown = "01900000-0000-7000-8000-00000000000a"

    with pytest.raises(PlanStale, match=unknown):
        await hold.dead_letters.replay(unknown, actor="ann")
    with pytest.raises(PlanStale, match=unknown):
        await hold.dead_letters.progress(unknown)
    service.error = None
    async with hold.worker(poll=0.05):
        await replayed(hold, clock, token)
    with pytest.raises(PlanStale, match=f"plan {token} is done; plan again for what is left"):
        await hold.dead_letters.replay(token, actor="ann")
    assert [letter.replays for letter in await hold.dead_letters.list(LetterFilter(plan=token))] == [1]
