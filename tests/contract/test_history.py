"""A job's history has every change, in order, and what is recorded never changes."""

from datetime import timedelta
from itertools import pairwise

import pytest

from holdfast import Event, Status
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.transitions import Finish, complete, fail, release
from holdfast.ports import Store
from holdfast.types import EventKind
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, a_claim, claimed, submitted

POLICY = RetryPolicy(3, Backoff.constant(2))


def kinds_of(events: list[Event]) -> list[str]:
    return [event.kind.value for event in events]


def words(text: str) -> list[str]:
    return text.split()


async def next_claim(store: Store, clock: DatabaseClock) -> None:
    """Let waits and leases pass."""
    await clock.advance(LEASE + timedelta(seconds=1))
    await store.reclaim(limit=1)
    await store.promote(limit=1)


@pytest.mark.clause("JOB-11")
async def test_every_change_is_an_event_in_the_order_it_happened(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store)
    await store.settle("worker", [fail(claim, a_failure(), POLICY, roll=0, attempt=1)])
    await next_claim(store, clock)
    lost = await claimed(store, "lost")
    await next_claim(store, clock)
    released = await claimed(store, "leaving")
    await store.settle("leaving", [release(released, "worker shut down")])
    staged = await claimed(store, "last")
    await store.settle("last", [a_stage(staged, "fetch", attempt=3)])
    await store.settle("last", [complete(staged, '"done"')])

    events = await store.events(lost.id)

    assert kinds_of(events) == words(
        "queued processing retry processing queued processing queued processing stage completed"
    )
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert events[1].meta == {"attempt": 1, "worker": "worker"}
    assert events[2].meta["error_class"] == "UPSTREAM_5XX"
    assert events[2].meta["delay_ms"] == 2000
    assert events[3].meta == {"attempt": 2, "worker": "lost"}
    assert events[4].meta == {"reason": "lease lost", "losses": 1}
    assert events[6].meta == {"reason": "worker shut down"}
    assert events[8].meta == {"stage": "fetch", "attempt": 3, "status": "done"}
    assert events[9].meta == {"attempt": 3}


@pytest.mark.clause("JOB-11")
async def test_a_failure_and_its_repair_are_recorded(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store)
    failure = a_failure(stack="Traceback: a secret place")
    await store.settle("worker", [a_stage(claim, "fetch")])
    await store.settle("worker", [a_stage(claim, "llm", call="de", status=StageStatus.FAILED)])
    await store.settle("worker", [Finish(claim.id, claim.token, Status.FAILED, failure=failure, stage="llm")])
    failed = await store.events(claim.id)
    await clock.advance(timedelta(hours=1))
    await store.retry(claim.id)

    repaired = await store.events(claim.id)

    assert kinds_of(failed) == ["queued", "processing", "stage", "stage", "failed"]
    assert failed[3].meta == {"stage": "llm[de]", "attempt": 1, "status": "failed"}
    assert failed[-1].meta == failure.summary() | {"stage": "llm"}
    assert kinds_of(repaired)[5:] == ["replayed"]
    assert repaired[-1].meta == {"generation": 2}
    assert repaired[:-1] == failed


@pytest.mark.clause("JOB-11")
async def test_what_was_recorded_once_stays_after_every_later_change(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store)
    histories = [await store.events(claim.id)]
    for change in (
        [a_stage(claim, "fetch")],
        [fail(claim, a_failure(), POLICY, roll=0, attempt=1)],
    ):
        await store.settle("worker", change)
        histories.append(await store.events(claim.id))
    await next_claim(store, clock)
    second = await claimed(store)
    histories.append(await store.events(claim.id))
    for end in (
        [a_stage(second, "llm", status=StageStatus.FAILED)],
        [Finish(second.id, second.token, Status.FAILED)],
    ):
        await store.settle("worker", end)
        histories.append(await store.events(claim.id))
    await store.retry(claim.id)
    histories.append(await store.events(claim.id))
    await store.cancel(claim.id)
    histories.append(await store.events(claim.id))

    for earlier, later in pairwise(histories):
        assert later[: len(earlier)] == earlier
    assert kinds_of(histories[-1]) == words(
        "queued processing stage retry processing stage failed replayed cancelled"
    )


@pytest.mark.clause("JOB-11")
async def test_a_key_that_was_used_again_after_the_end_stays_there_after_a_retry(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(key="k", args='{"a":1}'))
    await store.settle("worker", [Finish(claim.id, claim.token, Status.FAILED)])
    await clock.advance(timedelta(seconds=1))
    await store.submit([a_job(key="k", args='{"a":2}')])
    failed = await store.events(claim.id)
    await store.retry(claim.id)

    events = await store.events(claim.id)

    assert kinds_of(events) == words("queued processing failed warning replayed")
    assert events[:-1] == failed


@pytest.mark.clause("JOB-11")
async def test_a_cancelled_job_says_when(store: Store) -> None:
    [job_id] = await submitted(store, a_job())
    await store.cancel(job_id)

    events = await store.events(job_id)

    assert kinds_of(events) == ["queued", "cancelled"]
    assert events[-1].at == (await store.get(job_id)).finished_at


@pytest.mark.clause("JOB-11")
async def test_events_carry_no_stack_and_no_arguments(store: Store) -> None:
    claim = await a_claim(store, a_job(args='{"password":"hunter2"}'))
    failure = a_failure(stack="Traceback: hunter2")
    await store.settle("worker", [fail(claim, failure, RetryPolicy(1, Backoff.none()), roll=0, attempt=1)])
    await store.retry(claim.id)

    assert "hunter2" not in str(await store.events(claim.id))


@pytest.mark.clause("JOB-11")
async def test_a_clock_that_is_set_back_does_not_change_the_order(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store)
    await store.settle("worker", [a_stage(claim, "first")])
    await clock.advance(-timedelta(hours=1))
    await store.settle("worker", [a_stage(claim, "second")])
    await store.settle("worker", [fail(claim, a_failure(), POLICY, roll=0, attempt=1)])
    await clock.advance(timedelta(seconds=3))
    await store.promote(limit=1)
    await clock.advance(-timedelta(hours=1))
    again = await claimed(store)
    await store.settle("worker", [a_stage(again, "third")])
    await clock.advance(-timedelta(hours=1))
    await store.settle("worker", [a_stage(again, "fourth")])
    await store.settle("worker", [Finish(again.id, again.token, Status.FAILED)])
    failed = await store.events(claim.id)
    await clock.advance(-timedelta(hours=1))
    await store.retry(claim.id)
    last = await claimed(store)
    await store.settle("worker", [complete(last, "1")])

    events = await store.events(claim.id)

    assert kinds_of(events) == words(
        "queued processing stage stage retry processing stage stage failed replayed processing completed"
    )
    stages = [event.meta["stage"] for event in events if event.kind is EventKind.STAGE]
    assert stages == words("first second third fourth")
    assert events[: len(failed)] == failed


def test_every_kind_of_event_is_known() -> None:
    assert [kind.value for kind in EventKind] == words(
        "queued processing stage retry parked held completed failed expired replayed cancelled warning accepted signalled "
        "purged"
    )
