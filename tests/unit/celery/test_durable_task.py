"""A durable task is called as before, and each call is a job with the same options."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, Task, chain, chord, group
from celery.exceptions import MaxRetriesExceededError, Retry

from holdfast import Backoff, ErrorClass, Holdfast, Job, Status
from holdfast.celery import CeleryTransport, DurableResult, durable
from holdfast.errors import ConfigError, PayloadInvalid

LIMIT = 30


@pytest.fixture
def app() -> Celery:
    """An app with a broker in this process."""
    app = Celery("team", broker="memory://", set_as_current=False)
    app.conf.task_default_queue = f"team-{uuid4().hex}"
    return app


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Holdfast]:
    hold = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    hold.apply_schema_sync()
    yield hold
    hold.close_sync()


def sent(app: Celery) -> int:
    """How many messages are in the queue of the team."""
    queue = app.conf.task_default_queue
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        app.amqp.queues[queue](channel).declare()
        return int(channel._size(queue))


def run(hold: Holdfast, job_id: str) -> Job:
    """Run the jobs of *hold* here until this one has ended."""

    async def work() -> Job:
        async with hold, hold.worker(slots=2, poll=0.01):
            return await hold.wait(job_id, timeout=LIMIT)

    return asyncio.run(work())


def only_job(hold: Holdfast) -> Job:
    [job] = hold.find_sync()
    return hold.read_sync(job.id)


def test_delay_stores_a_job_that_runs_and_sends_nothing_to_celery(app: Celery, hold: Holdfast) -> None:
    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: int, y: int = 1) -> int:
        return x + y

    result = add.delay(2, y=3)

    assert isinstance(result, DurableResult)
    assert (result.id, result.state, sent(app)) == (result.job.id, "PENDING", 0)
    run(hold, result.id)
    assert (result.get(timeout=LIMIT), result.state, result.successful()) == (5, "SUCCESS", True)


def test_a_direct_call_apply_and_eager_mode_run_the_function_here_without_a_job(
    app: Celery, hold: Holdfast
) -> None:
    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    assert add(1, 2) == 3
    assert add.apply((1, 2)).get() == 3
    assert add.s(1)(2) == 3
    app.conf.task_always_eager = True
    assert add.delay(1, 2).get() == 3
    assert add.s(1, 2).delay().get() == 3
    assert hold.find_sync() == []


def test_the_options_of_apply_async_are_those_of_the_job(app: Celery, hold: Holdfast) -> None:
    hold.queue("grading", transport=CeleryTransport(app))

    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: int) -> int:
        return x

    add.apply_async((1,), countdown=60, expires=600, priority=5, queue="grading", headers={"trace": "1"})

    job = only_job(hold)
    assert (job.priority, job.queue, job.args) == (5, "grading", '{"x":1}')
    assert job.retry_after is not None
    assert job.retry_after - job.created_at == timedelta(seconds=60)
    assert job.deadline_at is not None
    assert job.deadline_at - job.created_at == timedelta(seconds=600)


def test_an_eta_without_a_zone_is_in_utc_as_it_is_for_a_worker_of_celery(app: Celery, hold: Holdfast) -> None:
    app.conf.timezone = "Asia/Ho_Chi_Minh"

    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: int) -> int:
        return x

    add.apply_async((1,), eta=datetime(2040, 1, 1, 7), expires=datetime(2040, 1, 2, tzinfo=UTC))

    job = only_job(hold)
    assert (job.retry_after, job.deadline_at) == (
        datetime(2040, 1, 1, 7, tzinfo=UTC),
        datetime(2040, 1, 2, tzinfo=UTC),
    )


def test_two_calls_with_one_task_id_are_one_job_whose_request_has_that_id(
    app: Celery, hold: Holdfast
) -> None:
    seen: list[Any] = []

    @durable(hold)
    @app.task(name="add", shared=False, bind=True)
    def add(self: Task, x: int) -> str:
        seen.append((self.request.id, self.request.retries, self.request.task, self.request.called_directly))
        return str(self.request.id)

    first = add.apply_async((1,), task_id="order-17")
    second = add.apply_async((1,), task_id="order-17")

    assert (first.id, second.id) == ("order-17", "order-17")
    assert first.job.id == second.job.id
    run(hold, first.job.id)
    assert first.get(timeout=LIMIT) == "order-17"
    assert seen == [("order-17", 0, "add", False)]


def test_a_retry_of_the_task_is_a_retry_of_the_job(app: Celery, hold: Holdfast) -> None:
    seen: list[int] = []

    @durable(hold)
    @app.task(name="flaky", shared=False, bind=True, max_retries=2)
    def flaky(self: Task) -> str:
        seen.append(self.request.retries)
        if self.request.retries < 2:
            try:
                raise ConnectionError("away")
            except ConnectionError as error:
                raise self.retry(exc=error, countdown=0) from error
        return "done"

    result = flaky.delay()
    run(hold, result.id)

    assert result.get(timeout=LIMIT) == "done"
    assert seen == [0, 1, 2]


def test_a_task_without_retries_left_raises_what_it_asked_for(app: Celery, hold: Holdfast) -> None:
    caught: list[str] = []

    @durable(hold)
    @app.task(name="flaky", shared=False, bind=True, max_retries=5)
    def flaky(self: Task) -> None:
        try:
            self.retry(countdown=0, max_retries=1)
        except Retry:
            caught.append("retry")
            raise
        except MaxRetriesExceededError:
            caught.append("exceeded")
            raise

    result = flaky.delay()
    ended = run(hold, result.id)

    assert caught == ["retry", "exceeded"]
    assert ended.status is Status.FAILED
    assert ended.failure is not None
    assert "MaxRetriesExceededError: Can't retry flaky" in ended.failure.message


def test_the_delay_of_a_retry_is_that_of_the_task_however_long(app: Celery, hold: Holdfast) -> None:
    @durable(hold)
    @app.task(name="flaky", shared=False, bind=True, default_retry_delay=7200)
    def flaky(self: Task) -> None:
        self.retry()

    result = flaky.delay()

    async def work() -> Job:
        async with hold, hold.worker(slots=1, poll=0.01):
            while (job := await hold.read(result.id)).retry_after is None:
                await asyncio.sleep(0.01)
            return job

    job = asyncio.run(work())
    assert job.retry_after is not None
    assert job.retry_after - job.updated_at == timedelta(hours=2)


def test_autoretry_for_retries_what_it_lists_and_ends_the_job_for_anything_else(
    app: Celery, hold: Holdfast
) -> None:
    seen: list[str] = []

    @durable(hold)
    @app.task(
        name="flaky",
        shared=False,
        autoretry_for=(ConnectionError,),
        retry_kwargs={"countdown": 0},
        max_retries=3,
    )
    def flaky(kind: str) -> None:
        seen.append(kind)
        raise ConnectionError(kind) if len(seen) == 1 else KeyError(kind)

    ended = run(hold, flaky.delay("x").id)

    assert seen == ["x", "x"]
    assert ended.failure is not None
    assert ended.failure.error_class is ErrorClass.BUG


def test_with_errors_of_holdfast_the_engine_decides_what_is_retried(app: Celery, hold: Holdfast) -> None:
    seen: list[int] = []

    @durable(hold, errors="holdfast", attempts=2, backoff=Backoff.none())
    @app.task(name="flaky", shared=False)
    def flaky() -> str:
        seen.append(1)
        if len(seen) == 1:
            raise ConnectionError("away")
        return "done"

    result = flaky.delay()

    assert run(hold, result.id).status is Status.COMPLETED


def test_arguments_that_are_no_json_are_refused_by_name_and_nothing_is_stored(
    app: Celery, hold: Holdfast
) -> None:
    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: Any, when: Any) -> None: ...

    with pytest.raises(PayloadInvalid, match=r"'add'.*when"):
        add.delay(1, object())
    with pytest.raises(PayloadInvalid, match="missing a required argument: 'when'"):
        add.delay(1)

    assert (hold.find_sync(), sent(app)) == ([], 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda task, other: chain(task.s(1), other.s())(),
        lambda task, other: task.s(1) | other.s(),
        lambda task, other: other.s(1) | task.s(),
        lambda task, other: group(task.s(1), task.s(2))(),
        lambda task, other: chord([task.s(1)])(other.s()),
        lambda task, other: chord([other.s(1)])(task.s()),
        lambda task, other: task.apply_async((1,), link=other.s()),
        lambda task, other: task.apply_async((1,), link_error=other.s()),
        lambda task, other: task.s(1).link(other.s()),
        lambda task, other: task.chunks([(1,)], 1),
    ],
)
def test_a_workflow_of_celery_is_refused_with_the_name_of_the_task_and_nothing_is_sent(
    app: Celery, hold: Holdfast, call: Any
) -> None:
    app.conf.result_backend = "cache+memory://"

    @durable(hold)
    @app.task(name="shop.add", shared=False)
    def add(x: int) -> int:
        return x

    @app.task(name="other", shared=False)
    def other(x: int = 0) -> int:
        return x

    with pytest.raises(ConfigError, match=r"task 'shop\.add' is durable"):
        call(add, other)

    assert (hold.find_sync(), sent(app)) == ([], 0)


def test_a_signature_is_a_call_that_can_be_delayed(app: Celery, hold: Holdfast) -> None:
    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    add.s(1).set(countdown=60).delay(2)

    job = only_job(hold)
    assert (job.args, job.retry_after is None) == ('{"x":2,"y":1}', False)


@pytest.mark.parametrize(("share", "stored", "messages"), [(0.0, 0, 3), (1.0, 3, 0)])
def test_a_share_of_the_calls_is_durable_and_the_others_go_to_celery(
    app: Celery, hold: Holdfast, share: float, stored: int, messages: int
) -> None:
    @durable(hold, share=share)
    @app.task(name="add", shared=False)
    def add(x: int) -> int:
        return x

    for number in range(3):
        add.delay(number)

    assert (len(hold.find_sync()), sent(app)) == (stored, messages)


def test_within_a_share_two_calls_with_one_id_go_the_same_way(app: Celery, hold: Holdfast) -> None:
    @durable(hold, share=0.5)
    @app.task(name="add", shared=False)
    def add(x: int) -> int:
        return x

    ways = [{type(add.apply_async((1,), task_id=f"id-{n}")) for _ in range(2)} for n in range(20)]

    assert all(len(way) == 1 for way in ways)
    assert len(set.union(*ways)) == 2


def test_a_retry_of_a_message_that_celery_sent_stays_with_celery(app: Celery, hold: Holdfast) -> None:
    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: int) -> int:
        return x

    add.apply_async((1,), task_id="from-a-message", retries=2)

    assert (hold.find_sync(), sent(app)) == ([], 1)


async def test_a_call_on_an_event_loop_blocks_it_as_celery_does_and_is_stored(
    app: Celery, hold: Holdfast
) -> None:
    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: int) -> int:
        return x

    result = add.delay(1)

    assert (await hold.read(result.id)).args == '{"x":1}'
    await hold.close()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"queue": "video"}, r"queue='video', for which no transport is declared \(declared: none\)"),
        ({"time_limit": 5}, "time_limit= of a single call is not supported"),
        ({"routing_key": "x"}, "routing_key= of a single call"),
    ],
)
def test_an_option_that_has_no_meaning_for_a_job_is_refused(
    app: Celery, hold: Holdfast, options: dict[str, Any], what: str
) -> None:
    @durable(hold)
    @app.task(name="add", shared=False)
    def add(x: int) -> int:
        return x

    with pytest.raises(ConfigError, match=what):
        add.apply_async((1,), **options)


def test_a_task_that_would_not_work_the_same_is_refused_where_it_is_declared(
    app: Celery, hold: Holdfast
) -> None:
    class Hooked(Task):
        def on_failure(self, *_: Any) -> None: ...

    @app.task(name="hooked", shared=False, base=Hooked)
    def hooked() -> None: ...

    @app.task(name="asynchronous", shared=False)
    async def asynchronous() -> None: ...

    with pytest.raises(ConfigError, match="task 'hooked' has on_failure, which a job does not call"):
        durable(hold)(hooked)
    with pytest.raises(ConfigError, match="task 'asynchronous' is async"):
        durable(hold)(asynchronous)
    with pytest.raises(ConfigError, match=r"is no task of Celery; write it above @app\.task"):
        durable(hold)(print)
