"""Differences that the machine found in the stores, each as a minimal test."""

from datetime import timedelta

import pytest

from holdfast.core.jobs.job import EventKind, Receipt, Submission
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, Requeue, release
from holdfast.ports.store import Promotion, SubmissionRefusal
from tests.builders import a_failure, a_job, a_stage
from tests.contract.steps import a_claim, claimed, submitted
from tests.stateful.conftest import Bench
from tests.stateful.model import START


def kinds(bench: Bench, job_id: str) -> list[str]:
    return [event.kind.value for event in bench.ask(bench.store.events(job_id))]


def made(bench: Bench, batch: list[Submission]) -> list[bool]:
    """Submit *batch*; return for each item whether it became a job."""
    answers = bench.ask(bench.store.submit(batch))
    return [answer == Receipt(item.id) for answer, item in zip(answers, batch, strict=True)]


@pytest.mark.clause("JOB-11")
@pytest.mark.parametrize("status", [StageStatus.DONE, StageStatus.FAILED])
def test_a_stage_written_together_with_the_end_of_its_run_is_recorded_before_it(
    bench: Bench, status: StageStatus
) -> None:
    claim = bench.ask(a_claim(bench.store))
    back = Requeue(claim.id, claim.token, EventKind.RETRY, failure=a_failure())

    bench.ask(bench.store.settle("worker", [back, a_stage(claim, status=status)]))

    assert kinds(bench, claim.id) == ["queued", "processing", "stage", "retry"]


@pytest.mark.clause("JOB-11")
def test_replaying_a_job_changes_no_order_in_its_history(bench: Bench) -> None:
    claim = bench.ask(a_claim(bench.store))
    failed, done = a_stage(claim, "llm", status=StageStatus.FAILED), a_stage(claim, "fetch")
    bench.ask(bench.store.settle("worker", [failed, release(claim, "worker shut down")]))
    bench.set_clock(START + timedelta(seconds=1))
    again = bench.ask(claimed(bench.store))
    bench.set_clock(START + timedelta(seconds=2))
    end = Finish(again.id, again.token, Status.FAILED, failure=a_failure())
    bench.ask(bench.store.settle("worker", [done._replace(token=again.token), end]))
    before = kinds(bench, claim.id)
    bench.set_clock(START + timedelta(seconds=3))

    bench.ask(bench.store.retry(claim.id))

    assert before == ["queued", "processing", "stage", "queued", "processing", "stage", "failed"]
    assert kinds(bench, claim.id) == [*before, "replayed"]


@pytest.mark.clause("JOB-11")
def test_a_run_is_recorded_under_the_name_of_its_holder_whichever_worker_ended_it(bench: Bench) -> None:
    claim = bench.ask(a_claim(bench.store))
    [*_, before] = bench.ask(bench.store.events(claim.id))

    bench.ask(bench.store.settle("another", [release(claim, "worker shut down")]))

    assert bench.ask(bench.store.events(claim.id))[1] == before
    assert before.meta["worker"] == "worker"


def test_a_job_that_is_due_and_left_out_is_not_the_next_one_to_be_due(bench: Bench) -> None:
    jobs = [a_job(delay=timedelta(seconds=length)) for length in (1, 2, 60)]
    bench.ask(submitted(bench.store, *jobs))
    bench.set_clock(START + timedelta(seconds=10))

    assert bench.ask(bench.store.promote(limit=1)) == Promotion(1, timedelta(seconds=50))
    assert bench.ask(bench.store.promote(limit=2)) == Promotion(1, timedelta(seconds=50))


@pytest.mark.clause("IDM-3")
def test_versions_in_one_batch_are_decided_on_in_its_order(bench: Bench) -> None:
    falling = [a_job(subject="s", version=version, rerun=True) for version in (2, 1)]
    rising = [a_job(subject="t", version=version) for version in (1, 2)]

    assert made(bench, [*falling, *rising]) == [True, False, True, False]


@pytest.mark.clause("IDM-1")
def test_no_job_is_refused_because_of_a_job_that_was_itself_refused(bench: Bench) -> None:
    bench.ask(submitted(bench.store, a_job(subject="s", version=2)))
    refused = a_job(key="k", subject="s", version=1, args='{"n":1}')
    strict = a_job(key="k", strict_keys=True)

    assert made(bench, [refused, strict]) == [False, True]


@pytest.mark.clause("IDM-3")
def test_a_key_set_free_in_a_batch_counts_for_all_that_come_after(bench: Bench) -> None:
    bench.ask(submitted(bench.store, a_job(subject="s", version=2)))
    batch = [
        a_job(key="k", subject="s", version=1),
        a_job(key="k", subject="t", version=1),
        a_job(key="k"),
        a_job(subject="t", version=2),
    ]

    answers = bench.ask(bench.store.submit(batch))

    assert [isinstance(answer, SubmissionRefusal) for answer in answers] == [True, False, False, True]
    assert answers[1:3] == [Receipt(batch[1].id), Receipt(batch[1].id, existing=True)]
