"""A sweep that has met as much as it takes at a time is followed by another at once."""

from datetime import timedelta

import pytest

from holdfast.core.jobs.transitions import complete
from holdfast.engine.options import WorkerOptions
from holdfast.engine.worker.maintenance import BATCH, Maintenance
from holdfast.ports import Store
from holdfast.telemetry.logs import StructuredLogger
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.wiring.system import SystemClock, SystemRandom
from tests.builders import a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, a_claim, submitted
from tests.runtimes import a_runtime

SOON = timedelta(minutes=5)


def maintenance_of(store: Store, metrics: MetricRegistry) -> Maintenance:
    quiet = StructuredLogger(level="CRITICAL")
    runtime = a_runtime(
        store=store, clock=SystemClock(), random=SystemRandom(), logger=quiet, metrics=metrics
    )
    return Maintenance(runtime, WorkerOptions(), lambda: None)


@pytest.mark.clause("SLA-2")
async def test_many_deadlines_at_once_do_not_wait_for_a_poll_each_thousand(
    store: Store, clock: DatabaseClock
) -> None:
    metrics = MetricRegistry()
    maintenance = maintenance_of(store, metrics)
    await submitted(store, *[a_job(deadline=SOON) for _ in range(BATCH + 1)])
    await clock.advance(SOON)

    pauses = [await maintenance.run_once() for _ in range(2)]

    assert pauses[0] == 0
    assert pauses[1] > 0
    assert metrics.value("jobs_timed_out") == BATCH + 1


async def test_many_ends_at_once_do_not_wait_for_a_poll_each_thousand(store: Store) -> None:
    maintenance = maintenance_of(store, MetricRegistry())
    parent = await a_claim(store)
    children = await submitted(store, *[a_job() for _ in range(BATCH + 1)])
    claims = await store.claim("worker", "default", limit=BATCH + 1, lease=LEASE)
    await store.await_jobs(parent.id, parent.token, children)
    await store.settle("worker", [complete(claim, "1") for claim in claims])

    pauses = [await maintenance.run_once() for _ in range(2)]

    assert pauses[0] == 0
    assert pauses[1] > 0
    assert (await store.get(parent.id)).pending == 0
