"""A real beat and a dispatcher share the ticks of a schedule: each tick is one job."""

import pytest

from holdfast import Job, JobFilter
from tests.integration.celery.celery_processes import Fleet, a_celery

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def test_a_tick_is_one_job_while_beat_and_a_dispatcher_both_run(idle_fleet: Fleet) -> None:
    fleet = idle_fleet
    environment = fleet.environment | {"FLEET_BEAT": "1"}
    state = str(fleet.log.folder / "beat")
    beat = ("-A", "fleet_app", "beat", "--loglevel=INFO", "--schedule", state, "--pidfile", "")
    with a_celery(*beat, environment=environment) as beating, fleet.dispatcher(FLEET_BEAT="1"):
        for _ in range(4):
            beating.wait_for("Scheduler: Sending due task tick")
        fleet.wait_until(lambda: len(submitted(fleet)) >= 4)
        jobs = sorted(submitted(fleet), key=lambda job: job.created_at)

    # A tick may be stored a second late; if each were stored twice, there would be about two jobs for each second.
    seconds = (jobs[-1].created_at - jobs[0].created_at).total_seconds()
    assert len(jobs) <= seconds + 2


def submitted(fleet: Fleet) -> list[Job]:
    return [*fleet.hold.find_sync(JobFilter(name="ticking"))]
