"""Celery workers of each kind: how they stop, lose a lease, reach time limits, and refuse what they cannot run."""

import os
import signal

import pytest

from holdfast import ErrorClass, Status
from holdfast.types import EventKind
from tests.integration.celery.celery_processes import Fleet

LIMIT = 60
"""Seconds; less than a lease, so that what is claimed within it has not waited for one to expire."""

ENOUGH_TO_BEGIN = 5
"""Seconds until a time limit is reached: a new process has to begin the job before, also on a busy machine."""

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.mark.clause("JOB-7")
def test_a_worker_that_is_stopped_finishes_its_job_and_disconnects(idle_fleet: Fleet) -> None:
    fleet = idle_fleet
    with fleet.dispatcher(), fleet.worker("-c", "1") as worker:
        job = fleet.jobs.blocked.submit_sync("stopping")
        fleet.await_event(job.id, "begun")

        worker.signal(signal.SIGTERM)
        worker.wait_for("Warm shutdown")
        fleet.log.allow("stopping")

        assert worker.end() == 0
        assert job.result_sync(LIMIT) == "done"
    assert [event["what"] for event in fleet.log.read(job.id)] == ["begun", "ended"]
    assert "fleet runner stopped" in worker.output


@pytest.mark.clause("JOB-6")
def test_a_process_that_lost_its_lease_while_it_was_suspended_writes_nothing(idle_fleet: Fleet) -> None:
    fleet = idle_fleet
    with (
        fleet.dispatcher(WORKER_LEASE_TTL_SEC="3"),
        fleet.worker("-c", "2", WORKER_LEASE_TTL_SEC="3") as worker,
    ):
        job = fleet.jobs.blocked.submit_sync("suspended")
        suspended = fleet.await_event(job.id, "begun")["pid"]
        os.kill(suspended, signal.SIGSTOP)
        other = fleet.await_event(job.id, "begun", times=2)["pid"]
        fleet.log.allow("suspended")
        job.result_sync(LIMIT)
        lease = job.read_sync().lease_token

        os.kill(suspended, signal.SIGCONT)
        fleet.await_event(job.id, "ended", times=2)
        worker.signal(signal.SIGTERM)
        worker.end()

    assert suspended != other
    assert job.read_sync().lease_token == lease
    assert [event.kind for event in job.events_sync()].count(EventKind.COMPLETED) == 1


@on_sqlite
@pytest.mark.parametrize("kind", ["blocked", "waiting"])
def test_the_soft_time_limit_fails_an_attempt_plain_or_async_and_the_job_is_retried(
    idle_fleet: Fleet, kind: str
) -> None:
    fleet = idle_fleet
    with fleet.dispatcher(), fleet.worker("-c", "1", f"--soft-time-limit={ENOUGH_TO_BEGIN}"):
        job = getattr(fleet.jobs, kind).submit_sync(f"limited {kind}")
        fleet.await_event(job.id, "begun", times=2)
        fleet.log.allow(f"limited {kind}")

        assert job.result_sync(LIMIT) == "done"
    [retry] = [event for event in job.events_sync() if event.kind is EventKind.RETRY]
    assert retry.meta["error_class"] == ErrorClass.NETWORK_TIMEOUT


@on_sqlite
@pytest.mark.clause("GRD-8")
@pytest.mark.parametrize("kind", ["blocked", "waiting"])
def test_a_job_that_was_killed_by_the_hard_time_limit_runs_again_at_once(
    idle_fleet: Fleet, kind: str
) -> None:
    fleet = idle_fleet
    with fleet.dispatcher(), fleet.worker("-c", "1", f"--time-limit={ENOUGH_TO_BEGIN}"):
        job = getattr(fleet.jobs, kind).submit_sync(f"killed {kind}")
        fleet.await_event(job.id, "begun", times=2)
        fleet.log.allow(f"killed {kind}")

        assert job.result_sync(LIMIT) == "done"
    assert len(set(fleet.pids(job.id))) == 2


@on_sqlite
@pytest.mark.clause("JOB-10")
@pytest.mark.parametrize("kind", ["blocked", "waiting"])
def test_a_process_that_is_terminated_leaves_its_job_to_another_and_the_loss_counts(
    idle_fleet: Fleet, kind: str
) -> None:
    fleet = idle_fleet
    with fleet.dispatcher(), fleet.worker("-c", "1"):
        job = getattr(fleet.jobs, kind).submit_sync(f"terminated {kind}")
        os.kill(fleet.await_event(job.id, "begun")["pid"], signal.SIGTERM)
        fleet.await_event(job.id, "begun", times=2)
        attempt = job.read_sync().attempt
        fleet.log.allow(f"terminated {kind}")

        assert job.result_sync(LIMIT) == "done"
    assert attempt == 2


@on_sqlite
@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_jobs_run_in_a_pool_of_threads_and_in_the_solo_pool(idle_fleet: Fleet, pool: str) -> None:
    fleet = idle_fleet
    with fleet.dispatcher(), fleet.worker("-c", "2", "-P", pool) as worker:
        handles = fleet.jobs.plain.submit_many_sync([(number,) for number in range(5)])
        results = [handle.result_sync(LIMIT) for handle in handles]

        worker.signal(signal.SIGTERM)

        assert worker.end() == 0
    assert [result["number"] for result in results] == list(range(5))
    assert all(result["thread"].startswith("Thread" if pool == "threads" else "Main") for result in results)
    assert "fleet runner stopped" in worker.output


@on_sqlite
def test_a_process_that_is_replaced_after_a_number_of_tasks_disconnects_first(idle_fleet: Fleet) -> None:
    fleet = idle_fleet
    with fleet.dispatcher(), fleet.worker("-c", "1", "--max-tasks-per-child=1") as worker:
        handles = fleet.jobs.plain.submit_many_sync([(1,), (2,)])
        pids = {handle.result_sync(LIMIT)["pid"] for handle in handles}
        worker.signal(signal.SIGTERM)
        worker.end()

    assert len(pids) == 2
    assert worker.output.count("fleet runner stopped") == 2


@on_sqlite
def test_a_worker_that_takes_no_json_does_not_start_and_says_why_in_one_line(idle_fleet: Fleet) -> None:
    with idle_fleet.starting_worker(FLEET_ACCEPT="yaml") as worker:
        code = worker.end()

    assert code != 0
    assert (
        "accept_content of the Celery app: it has no 'json', so workers would delete every" in worker.output
    )
    assert "Traceback" not in worker.output


@on_sqlite
def test_a_dispatch_that_a_worker_without_holdfast_deleted_comes_again(idle_fleet: Fleet) -> None:
    fleet = idle_fleet
    with fleet.dispatcher():
        with fleet.worker("-c", "1", FLEET_WITHOUT_HOLDFAST="1") as worker:
            job = fleet.jobs.plain.submit_sync(1)
            worker.wait_for("Received unregistered task of type 'holdfast.run'")
        assert job.read_sync().status is Status.QUEUED

        with fleet.worker("-c", "1"):
            assert job.result_sync(LIMIT)["number"] == 1
