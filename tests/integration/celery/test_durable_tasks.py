"""Durable tasks run in real Celery workers, and their callers get results as before."""

import pytest
from celery.result import AsyncResult

from holdfast import Status
from tests.integration.celery.celery_processes import Fleet

LIMIT = 60

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def test_a_call_is_retried_and_its_result_is_found_by_the_id_that_its_caller_chose(fleet: Fleet) -> None:
    result = fleet.tasks.adopted.apply_async((7,), task_id="order-7")

    expected = {"number": 7, "id": "order-7"}
    assert result.get(timeout=LIMIT) == expected
    assert AsyncResult("order-7", app=fleet.app).get(timeout=LIMIT) == expected
    assert [event["retries"] for event in fleet.log.read(result.job.id)] == [0, 1]


def test_a_call_that_failed_raises_its_own_exception_at_the_caller(fleet: Fleet) -> None:
    result = fleet.tasks.failing.delay()

    with pytest.raises(LookupError, match="no such order"):
        AsyncResult(result.id, app=fleet.app).get(timeout=LIMIT)
    assert result.job.read_sync().status is Status.FAILED


def test_a_task_has_its_own_time_limit_and_may_handle_it(fleet: Fleet) -> None:
    assert fleet.tasks.limited.delay().get(timeout=LIMIT) == "stopped by the limit"


def test_a_message_that_celery_sent_before_the_change_is_run_as_before(fleet: Fleet) -> None:
    fleet.app.send_task("failing", queue=fleet.queue, task_id="old-message")

    with pytest.raises(LookupError, match="no such order"):
        AsyncResult("old-message", app=fleet.app).get(timeout=LIMIT)
