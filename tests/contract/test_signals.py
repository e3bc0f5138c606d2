"""A signal leaves a trace: in the job's history, in the log, and in the metrics."""

import pytest

from holdfast import Backoff, Holdfast
from holdfast.core.jobs.job import MOST_SIGNALS
from holdfast.errors import StateRefused
from holdfast.ports import Store
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.types import EventKind
from tests.builders import a_job
from tests.contract.conftest import Database, Logger
from tests.contract.steps import a_completed_job, submitted
from tests.contract.stored_letters import changed


@pytest.fixture
def metrics() -> MetricRegistry:
    return MetricRegistry()


@pytest.fixture
def hold(database: Database, logger: Logger, metrics: MetricRegistry) -> Holdfast:
    return Holdfast(database.url, backoff=Backoff.none(), logger=logger.writer, metrics=metrics)


@pytest.mark.clause("JOB-11")
async def test_the_history_names_each_signal_and_who_sent_it(store: Store) -> None:
    [job_id] = await submitted(store, a_job())

    await store.signal(job_id, "approved", "1", actor="ada")
    await store.signal(job_id, "approved", "2")

    recorded = [(event.kind, dict(event.meta)) for event in await store.events(job_id)]
    assert recorded == [
        (EventKind.QUEUED, {}),
        (EventKind.SIGNALLED, {"signal": "approved", "actor": "ada"}),
        (EventKind.SIGNALLED, {"signal": "approved"}),
    ]


async def test_a_signal_that_is_refused_leaves_no_trace(
    hold: Holdfast, store: Store, logger: Logger, metrics: MetricRegistry
) -> None:
    ended = await a_completed_job(store)
    before = await store.events(ended.id)

    async with hold:
        with pytest.raises(StateRefused):
            await hold.signal(ended.id, "approved")

    assert await store.events(ended.id) == before
    assert logger.lines("signal sent") == []
    assert metrics.value("signals_sent") == 0


async def test_a_signal_is_logged_and_counted(
    hold: Holdfast, store: Store, logger: Logger, metrics: MetricRegistry
) -> None:
    [job_id] = await submitted(store, a_job())

    async with hold:
        await hold.signal(job_id, "approved", {"secret": "hunter2"}, actor="ada")

    [line] = logger.lines("signal sent")
    assert (line["job_id"], line["signal"], line["actor"], line["level"]) == (
        job_id,
        "approved",
        "ada",
        "info",
    )
    assert "hunter2" not in logger.stream.getvalue()
    assert metrics.value("signals_sent") == 1


async def test_a_job_takes_signals_up_to_a_limit_and_no_more(store: Store, database: Database) -> None:
    [job_id] = await submitted(store, a_job())
    await changed(database, f"UPDATE :jobs SET signals = {MOST_SIGNALS - 1}")
    await store.signal(job_id, "go", "1")

    with pytest.raises(StateRefused, match="10,000 signals"):
        await store.signal(job_id, "go", "2")

    assert [signal.data for signal in await store.signals([job_id])] == ["1"]
    assert [event.kind for event in await store.events(job_id)] == ["queued", "signalled"]
