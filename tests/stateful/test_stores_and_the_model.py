"""A store answers every sequence of commands as the model does, and records the same histories.

The search goes in rounds, each with a number of its own, and a round with the same number is the same everywhere.
It begins at the number of the first simulated world, in CI another one with each change, and goes on until every outcome
was reached. `HOLDFAST_LONG=1` makes many times as many rounds, and begins at another number each time; a difference that is
found names its round, and `HOLDFAST_ROUND` begins there.
"""

import os
import random
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import Transition
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.stateful.conftest import Bench, SqliteBench
from tests.stateful.machine import StoreMachine

LONG = bool(os.environ.get("HOLDFAST_LONG"))
FIRST = int(
    os.environ.get("HOLDFAST_ROUND")
    or (random.randrange(10**9) if LONG else os.environ.get("HOLDFAST_SIM_FIRST", "1"))
)
ROUNDS = {"sqlite": 300, "postgres": 150} if LONG else {"sqlite": 12, "postgres": 6}
MOST_ROUNDS = 40
"""After so many rounds an outcome that was not reached is out of reach; the rarest is reached in each fourth round."""

EXAMPLES = 11
"""Examples in a round: after the first ten, Hypothesis mostly varies earlier examples, and reaches less that is new."""

STEPS = 60

REQUIRED_OUTCOMES = """
submit: created
submit: created for a later version
submit: deduplicated by key
submit: deduplicated by version
submit: deduplicated, with another payload
submit: KeyReused
submit: VersionRefused
submit: repeated
claim: after a lost lease
claim: after a hold
claim: in a later generation
claim: with stages
claim: with a request to cancel
settle: completed
settle: completed after a request to cancel
settle: failed
settle: cancelled
settle: cancelled after a request to cancel
settle: requeued for a retry
settle: requeued for a retry after a request to cancel
settle: released
settle: released after a lost lease
settle: stage started
settle: stage done
settle: stage done after a lost lease
settle: stage failed
settle: parked
settle: parked after a request to cancel
settle: held
settle: held after a request to cancel
settle: completed, and late
settle: completed, and timed_out
settle: failed, and timed_out
settle: failed, and over
settle: failed, and early
settle: stage done, and over
settle: refused by a job that is queued
settle: refused by a job that is processing
settle: refused by a job that is completed
settle: refused by a job that is failed
settle: refused by a job that is cancelled
extend: extended
extend: lost
extend: with a request to cancel
extend: with a deadline that has passed
begin: begun
begin: refused
promote: made ready
promote: as many as allowed
providers.release: made ready
providers.release: as many as allowed
reclaim: requeued
reclaim: as many as allowed
expire: ended while queued
expire: ended while processing
expire: ended while held
expire: as many as allowed
accept_late: completed
accept_late: StateRefused
accept_late: JobNotFound
signal: woken
signal: left with a job that is queued
signal: left with a job that is processing
signal: left with a job that is held
signal: StateRefused
signal: JobNotFound
queues.pause: done
queues.pause: done before
queues.resume: done
queues.resume: done before
queues.paused: something
cancel: cancelled
cancel: cancelled while held
cancel: processing
cancel: StateRefused
cancel: JobNotFound
retry: replayed
retry: StateRefused
retry: JobNotFound
find: something
await_ends: something
cancel_requests: something
providers.holders: something
providers.count_held: something
"""


def search(
    bench: Bench,
    seen: Counter[str],
    rounds: Iterable[int],
    *,
    phases: tuple[Phase, ...] = (Phase.generate, Phase.shrink),
) -> None:
    """Search for a difference in the rounds of these numbers. Raises with the shortest example, if there is any."""
    for number in rounds:
        try:
            a_round(bench, seen, number=number, phases=phases)
        except AssertionError as difference:
            difference.add_note(f"HOLDFAST_ROUND={number} begins here")
            raise


def a_round(bench: Bench, seen: Counter[str], *, number: int, phases: tuple[Phase, ...]) -> None:
    """Run one round."""
    run_state_machine_as_test(
        seed(number)(lambda: StoreMachine(bench, seen)),  # type: ignore[arg-type]  # what makes a machine will do
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            database=None,
            deadline=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.clause("JOB-2")
@pytest.mark.clause("JOB-4")
@pytest.mark.clause("JOB-6")
@pytest.mark.clause("JOB-11")
@pytest.mark.clause("JOB-12")
@pytest.mark.clause("RET-6")
@pytest.mark.clause("IDM-2")
@pytest.mark.clause("IDM-3")
@pytest.mark.clause("SLA-2")
@pytest.mark.clause("SLA-3")
@pytest.mark.clause("SLA-4")
def test_a_store_does_what_the_model_says_and_records_the_same_history(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    seen: Counter[str] = Counter()
    store = request.node.callspec.params["bench"]

    search(bench, seen, range(FIRST, FIRST + ROUNDS[store]))
    more = range(FIRST + ROUNDS[store], FIRST + MOST_ROUNDS)
    search(bench, seen, takewhile(lambda _: missed(seen), more))

    assert not missed(seen), f"no example reached this, so nothing was shown about it: {missed(seen)}"


def missed(seen: Counter[str]) -> list[str]:
    """Return the required outcomes that no example reached."""
    return [outcome for outcome in REQUIRED_OUTCOMES.strip().split("\n") if not seen[outcome]]


class Planted:
    """A store with a bug; other calls are passed on."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class WithoutFence(Planted):
    """Lets any worker write, under the token that is valid now."""

    async def settle(self, worker: str, batch: list[Transition]) -> list[Settled]:
        jobs = [await self._store.get(change.id) for change in batch]
        fresh = [change._replace(token=job.lease_token) for change, job in zip(batch, jobs, strict=True)]
        return await self._store.settle(worker, fresh)


class WithoutLosses(Planted):
    """Does not report to the next worker that the last one was lost."""

    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        return [claim._replace(losses=0) for claim in await self._store.claim(*args, **options)]


class WithoutOwners(Planted):
    """Lets any owner cancel."""

    async def cancel(self, job_id: str, *, owner: str | None = None) -> object:
        return await self._store.cancel(job_id)


@pytest.mark.parametrize("planted", [WithoutFence, WithoutLosses, WithoutOwners])
def test_the_machine_finds_a_mistake(sqlite_bench: SqliteBench, planted: type[Planted]) -> None:
    sqlite_bench.ask(sqlite_bench.store.open())
    sqlite_bench.store = planted(sqlite_bench.store)

    with pytest.raises(AssertionError, match="not answered as promised"):
        search(sqlite_bench, Counter(), range(10), phases=(Phase.generate,))

    sqlite_bench.ask(sqlite_bench.store.close())
