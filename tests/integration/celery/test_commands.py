"""The commands about Celery apps and fleets."""

import json

import pytest

from tests.integration.celery.celery_processes import HERE, Fleet
from tests.integration.cli_process import holdfast

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def test_a_drain_waits_until_the_queue_is_empty_and_says_how_many_jobs_are_left(fleet: Fleet) -> None:
    job = fleet.jobs.blocked.submit_sync("draining")
    fleet.await_event(job.id, "begun")

    late = holdfast(
        "fleet",
        "drain",
        "fleet",
        "--app",
        "fleet_app:hold",
        "--timeout",
        "1s",
        cwd=HERE,
        settings=fleet.environment,
    )
    fleet.log.allow("draining")
    done = holdfast(
        "fleet", "drain", "fleet", "--app", "fleet_app:hold", cwd=HERE, settings=fleet.environment
    )

    assert (late.returncode, late.stdout, late.stderr) == (1, "fleet\t1\n", "1 jobs of 'fleet' are left\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "fleet\t0")


def test_an_inspection_says_of_each_task_what_it_is_as_a_job(idle_fleet: Fleet) -> None:
    shown = holdfast(
        "celery", "inspect", "inspected_app:app", "--json", cwd=HERE, settings=idle_fleet.environment
    )

    assert shown.returncode == 0, shown.stderr
    reports = {report["task"]: report for report in json.loads(shown.stdout)}
    assert sorted(reports) == ["asynchronous", "hooked", "limited", "pickled", "workflow"]
    assert reports["limited"]["maps"] == [
        "bind: self.request.id, .retries and .task; self.retry()",
        "max_retries=5: 6 attempts",
        "autoretry_for=ConnectionError: retried, all other errors end the job",
        "time limits (hard 60, soft 30): sent with each dispatch",
    ]
    assert reports["pickled"]["look_at"] == [
        "serializer=pickle: arguments and results have to be JSON",
        "rate_limit=10/m is for one worker; declare a provider with a rate for all of them",
        "it is routed to 'video'; give the job a queue with durable(hold, queue=...)",
        "beat starts it (nightly); take_over_beat(app, hold) makes that a schedule",
    ]
    assert reports["hooked"]["refused"] == ["on_failure: a job does not call it"]
    assert reports["asynchronous"]["refused"] == ["async: declare it with @hold.job instead"]
    assert reports["workflow"]["refused"] == ["chord in its code: a durable task cannot be part of one"]


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("inspected_app", "is not a reference to an application"),
        ("inspected_app:nothing", "has no 'nothing'"),
        ("fleet_app:hold", "it is a Holdfast, not a Celery app"),
    ],
)
def test_a_wrong_reference_is_one_clear_line(idle_fleet: Fleet, reference: str, why: str) -> None:
    shown = holdfast("celery", "inspect", reference, cwd=HERE, settings=idle_fleet.environment)

    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert why in shown.stderr


def test_the_doctor_knows_the_broker_of_a_fleet_and_the_settings_of_its_app(idle_fleet: Fleet) -> None:
    shown = holdfast("doctor", "--app", "fleet_app:hold", "--json", cwd=HERE, settings=idle_fleet.environment)

    checks = {check["name"]: check for check in json.loads(shown.stdout)["checks"]}
    assert checks["fleet fleet"]["detail"].startswith("celery on RabbitMQ 3")
    assert checks["fleet fleet task_acks_late"]["health"] == "warn"


def test_the_doctor_fails_if_the_broker_of_a_fleet_is_away(idle_fleet: Fleet) -> None:
    settings = idle_fleet.environment | {"FLEET_BROKER": "amqp://guest:hidden@127.0.0.1:1//"}

    shown = holdfast("doctor", "--app", "fleet_app:hold", "--json", cwd=HERE, settings=settings)

    checks = {check["name"]: check for check in json.loads(shown.stdout)["checks"]}
    assert (shown.returncode, checks["fleet fleet"]["health"]) == (1, "fail")
    assert "hidden" not in shown.stdout
