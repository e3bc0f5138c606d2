"""Letters that may be replayed automatically are found without reading those that never will be."""

from datetime import timedelta

from holdfast import ErrorClass, Status
from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.transitions import Finish
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.builders import a_failure, a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import a_claim

PASSES, STAYS = a_failure(), a_failure(ErrorClass.NOT_FOUND)
AGES = (timedelta(minutes=10), timedelta(days=1))


async def dead(store: Store, failure: Failure, *, name: str = "work") -> str:
    """Let a job fail; its id is its letter's."""
    claim = await a_claim(store, a_job(name=name))
    end = Finish(claim.id, claim.token, Status.FAILED, failure=failure)
    assert await store.settle("worker", [end]) == [Settled.WRITTEN]
    return claim.id


async def test_only_letters_that_are_due_are_read_the_oldest_first(
    store: Store, clock: DatabaseClock
) -> None:
    assert (PASSES.retryable, STAYS.retryable) == (True, False)
    await dead(store, PASSES)
    await clock.advance(timedelta(days=2))
    due = [await dead(store, PASSES) for _ in range(3)]
    await dead(store, STAYS)
    await dead(store, PASSES, name="other")
    await clock.advance(timedelta(hours=1))
    await dead(store, PASSES)

    pages = [await store.dead_letters.find_replayable("work", ages=AGES, limit=2)]
    while pages[-1]:
        pages.append(
            await store.dead_letters.find_replayable("work", ages=AGES, limit=2, after=pages[-1][-1])
        )

    assert [[letter.job_id for letter in page] for page in pages] == [due[:2], due[2:], []]
