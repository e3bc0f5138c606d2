"""Jobs run on real arq and Celery workers that are killed, while their brokers fail: one run, and the claims about it.

Each test is one claim, judged by the tables and by the log of the service that had the effects. `make fleet-chaos` is
the long run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.harness.databases import open_database
from tests.acceptance.harness.fleet_chaos import Evidence, Plan, fleet_harness
from tests.brokers import PrivateRedis
from tests.servers import ServerMissingError, in_ci

if TYPE_CHECKING:
    from tests.brokers import PrivateRabbitMQ
    from tests.servers import PrivatePostgres

PLAN = Plan(jobs=300, kills=3, flushes=1, restarts=1, limit=240)


@pytest.fixture(scope="module")
def seen(
    stoppable_server: PrivatePostgres,
    _private_rabbitmq: PrivateRabbitMQ,
    tmp_path_factory: pytest.TempPathFactory,
) -> Evidence:
    """Run everything once, with faults."""
    folder = tmp_path_factory.mktemp("fleet-chaos")
    _private_rabbitmq.start()
    try:
        redis_server = PrivateRedis()
    except ServerMissingError as missing:
        if in_ci():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    with (
        redis_server,
        open_database("postgres", folder, server=stoppable_server) as database,
        fleet_harness(
            PLAN, database, folder, redis_server=redis_server, rabbitmq=_private_rabbitmq
        ) as harness,
    ):
        evidence = harness.run()
        assert harness.unexpected_deaths() == []
    return evidence


def test_every_job_ends_and_none_is_lost_or_done_twice(seen: Evidence) -> None:
    assert seen.left == {}
    assert seen.damage == (0, 0, 0)
    assert seen.broken == ""


@pytest.mark.clause("JOB-10", "postgres")
def test_a_job_that_crashes_its_process_fails_and_no_other_job_fails_with_it(seen: Evidence) -> None:
    assert seen.crashers_failed == 2
    assert seen.others_failed == 0


@pytest.mark.clause("STG-2", "postgres")
def test_a_killed_process_costs_at_most_one_stage_of_its_job_an_attempt(seen: Evidence) -> None:
    assert seen.interrupted >= 1
    assert seen.overspent == 0


def test_workers_were_killed_and_both_brokers_failed(seen: Evidence) -> None:
    assert seen.kills == PLAN.kills
    assert (seen.injected["flush"], seen.injected["restart"]) == (1, 1)
    assert seen.effects == 2 * PLAN.jobs
