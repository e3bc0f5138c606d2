"""Jobs run in real Celery workers, with all that the engine promises of its own."""

import os
import signal
from datetime import timedelta

import pytest

from holdfast import ErrorClass, Status
from holdfast.types import EventKind
from tests.integration.celery.celery_processes import Fleet

LIMIT = 60
"""Seconds; less than a lease, so that what is claimed within it has not waited for one to expire."""


def test_a_plain_job_runs_in_the_main_thread_of_a_process_of_the_worker(fleet: Fleet) -> None:
    result = fleet.jobs.plain.submit_sync(7).result_sync(LIMIT)

    assert (result["number"], result["thread"]) == (7, "MainThread")


@pytest.mark.clause("GRD-4")
def test_an_async_job_runs_and_many_of_them_do(fleet: Fleet) -> None:
    handles = fleet.jobs.quick.submit_many_sync([(number,) for number in range(50)])

    assert [handle.result_sync(LIMIT) for handle in handles] == [number + 1 for number in range(50)]
    assert all(len(fleet.log.read(handle.id)) == 1 for handle in handles)


def test_a_plain_job_submits_another_and_is_parked_while_it_waits(fleet: Fleet) -> None:
    assert fleet.jobs.parent.submit_sync(1).result_sync(LIMIT) == 102


@pytest.mark.clause("JOB-3")
def test_a_job_that_is_dispatched_several_times_runs_once(fleet: Fleet) -> None:
    job = fleet.jobs.blocked.submit_sync("several")
    fleet.await_event(job.id, "begun")

    fleet.dispatch(job.id, job.id, job.id)
    fleet.jobs.quick.submit_sync(1).result_sync(LIMIT)  # the other process has had all of them
    fleet.log.allow("several")

    assert job.result_sync(LIMIT) == "done"
    assert [event["what"] for event in fleet.log.read(job.id)] == ["begun", "ended"]


def test_a_dispatch_of_an_ended_or_unknown_job_does_nothing(fleet: Fleet) -> None:
    job = fleet.jobs.plain.submit_sync(1)
    job.result_sync(LIMIT)

    fleet.dispatch(job.id, "00000000-0000-7000-8000-000000000000")
    fleet.jobs.quick.submit_sync(1).result_sync(LIMIT)

    assert len(fleet.log.read(job.id)) == 1
    assert job.read_sync().status is Status.COMPLETED


@pytest.mark.clause("GRD-8")
def test_a_job_whose_process_is_killed_runs_again_at_once(fleet: Fleet) -> None:
    job = fleet.jobs.blocked.submit_sync("killed")
    begun = fleet.await_event(job.id, "begun")

    os.kill(begun["pid"], signal.SIGKILL)
    again = fleet.await_event(job.id, "begun", times=2)
    fleet.log.allow("killed")

    assert job.result_sync(LIMIT) == "done"
    assert again["pid"] != begun["pid"]


@pytest.mark.clause("JOB-10")
def test_a_job_that_kills_its_process_each_time_fails_and_takes_no_other_with_it(fleet: Fleet) -> None:
    other = fleet.jobs.blocked.submit_sync("beside")
    fleet.await_event(other.id, "begun")
    job = fleet.jobs.crashing.submit_sync(99)

    ended = fleet.hold.wait_sync(job.id, timeout=LIMIT)
    fleet.log.allow("beside")

    assert ended.status is Status.FAILED
    assert ended.failure is not None
    assert ended.failure.error_class is ErrorClass.WORKER_LOST
    assert other.result_sync(LIMIT) == "done"
    assert len(fleet.pids(job.id)) == 3


@pytest.mark.clause("STG-2")
def test_each_stage_of_a_job_has_its_own_attempts(fleet: Fleet) -> None:
    job = fleet.jobs.staged.submit_sync()

    assert job.result_sync(LIMIT) == ["one", "two"]
    assert [event["what"] for event in fleet.log.read(job.id)] == ["first", "first", "second", "second"]


@pytest.mark.clause("BRK-2")
def test_no_call_is_made_while_the_breaker_is_open_and_no_attempt_is_lost(fleet: Fleet) -> None:
    first = fleet.jobs.calling.submit_sync()
    fleet.await_event(first.id, "called", times=2)
    held = fleet.jobs.calling.submit_sync()

    fleet.wait_until(
        lambda: held.read_sync().status is Status.QUEUED and held.read_sync().held_by is not None
    )

    assert fleet.log.read(held.id) == []
    assert len(fleet.log.read(first.id)) == 2
    for job in (first, held):
        job.cancel_sync()


@pytest.mark.clause("RET-4")
def test_a_service_that_asks_for_time_gets_it(fleet: Fleet) -> None:
    job = fleet.jobs.asked_to_wait.submit_sync(120)
    fleet.wait_until(lambda: any(event.kind is EventKind.RETRY for event in job.events_sync()))

    read = job.read_sync()

    assert read.status is Status.QUEUED
    assert read.retry_after is not None
    assert read.retry_after - read.updated_at >= timedelta(seconds=119)
    job.cancel_sync()


def test_a_job_that_is_cancelled_while_it_runs_stops(fleet: Fleet) -> None:
    job = fleet.jobs.waiting.submit_sync("never")
    fleet.await_event(job.id, "begun")

    job.cancel_sync()

    assert fleet.hold.wait_sync(job.id, timeout=LIMIT).status is Status.CANCELLED


def test_the_worker_runs_the_other_tasks_of_the_team_beside_the_jobs(fleet: Fleet) -> None:
    fleet.send_task("fleet_app.old", 1)

    fleet.wait_until(lambda: fleet.log.allows("old-1"))
