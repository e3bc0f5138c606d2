"""A function can ask which attempt it runs in, and for a key that no retry changes."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, JobFailed, Permanent, Retryable, current
from holdfast.errors import ConfigError
from tests.contract.steps import TIMEOUT

if TYPE_CHECKING:
    from holdfast.types import Current


async def test_a_retry_sees_another_attempt_and_the_same_key(hold: Holdfast) -> None:
    seen: list[Current] = []

    @hold.job("insist")
    async def insist() -> None:
        seen.append(current())
        if len(seen) < 3:
            raise Retryable

    job = await insist.submit()
    async with hold.worker(poll=0.05):
        await job.result(timeout=TIMEOUT)

    assert [(one.job_id, one.attempt, one.generation) for one in seen] == [(job.id, n, 1) for n in (1, 2, 3)]
    assert len({one.key for one in seen}) == 1


async def test_each_stage_has_a_key_of_its_own_whatever_its_name(hold: Holdfast) -> None:
    keys: list[str] = []

    async def note() -> None:
        keys.append(current().key)

    pay = hold.stage("pay")(note)
    odd = hold.stage("a:b \N{SNOWMAN}")(note)

    @hold.job("stages")
    async def stages() -> None:
        await pay()
        await pay()
        await pay.options(key="3#")()
        await odd()
        await note()

    job = await stages.submit()
    async with hold.worker(poll=0.05):
        await job.result(timeout=TIMEOUT)

    assert len(set(keys)) == 5
    assert all(key.isascii() and key.isprintable() and key.startswith(job.id) for key in keys)


async def test_a_stage_counts_its_own_attempts(hold: Holdfast) -> None:
    seen: list[tuple[str, int]] = []

    @hold.stage("first")
    async def first() -> None:
        seen.append(("first", current().attempt))
        if len(seen) < 2:
            raise Retryable

    @hold.stage("second")
    async def second() -> None:
        seen.append(("second", current().attempt))

    @hold.job("both")
    async def both() -> None:
        await first()
        await second()

    job = await both.submit()
    async with hold.worker(poll=0.05):
        await job.result(timeout=TIMEOUT)

    assert seen == [("first", 1), ("first", 2), ("second", 1)]


async def test_stages_side_by_side_and_in_threads_keep_their_keys_apart(hold: Holdfast) -> None:
    @hold.stage("here")
    async def here() -> str:
        await asyncio.sleep(0)
        return current().key

    @hold.stage("in a thread")
    def there() -> str:
        return current().key

    @hold.job("beside")
    async def beside() -> list[str]:
        return list(await asyncio.gather(here.options(key="a")(), here.options(key="b")(), there.in_thread()))

    job = await beside.submit()
    async with hold.worker(poll=0.05):
        keys = await job.result(timeout=TIMEOUT)

    assert [key.removeprefix(f"{job.id}:1:") for key in keys] == ["here:a", "here:b", "in%20a%20thread:#1"]


async def test_a_job_that_was_retried_has_new_keys(hold: Holdfast) -> None:
    keys: list[str] = []

    @hold.job("twice")
    async def twice() -> None:
        keys.append(current().key)
        if len(keys) == 1:
            raise Permanent

    job = await twice.submit()
    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed):
            await job.result(timeout=TIMEOUT)
        await job.retry()
        await job.result(timeout=TIMEOUT)

    assert len(set(keys)) == 2


def test_outside_a_job_there_is_no_attempt_to_ask_about() -> None:
    with pytest.raises(ConfigError, match="outside a job"):
        current()
