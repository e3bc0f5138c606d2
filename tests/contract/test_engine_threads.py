"""Plain functions run in threads, beside the loop, and do not block it."""

import asyncio
import threading
from typing import cast

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed
from holdfast.errors import StageFailed
from tests.contract.conftest import Logger
from tests.contract.steps import TIMEOUT


async def test_a_plain_function_runs_beside_the_loop(hold: Holdfast) -> None:
    seen: list[threading.Thread] = []

    @hold.job("plain")
    def plain(n: int) -> int:
        seen.append(threading.current_thread())
        return n + 1

    async with hold.worker(poll=0.05):
        assert await (await plain.submit(1)).result(timeout=TIMEOUT) == 2

    assert seen[0] is not threading.current_thread()


async def test_plain_functions_run_side_by_side_and_leave_the_loop_free(hold: Holdfast) -> None:
    together = threading.Barrier(3, timeout=TIMEOUT)

    @hold.job("meet")
    def meet() -> str:
        together.wait()
        return "met"

    @hold.job("quick")
    async def quick() -> str:
        return "quick"

    async with hold.worker(poll=0.05):
        waiting = [await meet.submit(), await meet.submit()]
        assert await (await quick.submit()).result(timeout=TIMEOUT) == "quick"
        third = await meet.submit()
        assert [await job.result(timeout=TIMEOUT) for job in (*waiting, third)] == ["met"] * 3


async def test_stages_of_a_plain_job_are_stored_and_not_run_again(hold: Holdfast) -> None:
    runs: list[str] = []

    @hold.stage("fetch")
    def fetch(name: str) -> str:
        runs.append(f"fetch {name}")
        return name.upper()

    @hold.job("plain")
    def plain() -> str:
        page = fetch("page")
        runs.append("body")
        if runs.count("body") == 1:
            raise TimeoutError("once")
        return page

    async with hold.worker(poll=0.05):
        job = await plain.submit()
        assert await job.result(timeout=TIMEOUT) == "PAGE"

    assert runs == ["fetch page", "body", "body"]


async def test_a_plain_stage_of_an_async_job_is_called_in_a_thread(hold: Holdfast) -> None:
    threads: list[threading.Thread] = []

    @hold.stage("blocking")
    def blocking() -> int:
        threads.append(threading.current_thread())
        return 7

    @hold.job("mixed")
    async def mixed() -> int:
        return await blocking.in_thread()

    @hold.job("wrong", attempts=1)
    async def wrong() -> int:
        return blocking()

    async with hold.worker(poll=0.05):
        assert await (await mixed.submit()).result(timeout=TIMEOUT) == 7
        with pytest.raises(JobFailed, match="in_thread"):
            await (await wrong.submit()).result(timeout=TIMEOUT)

    assert threads[0] is not threading.current_thread()


async def test_a_timeout_ends_the_wait_for_a_thread_that_does_not_end(hold: Holdfast, logger: Logger) -> None:
    release = threading.Event()

    @hold.job("stuck", attempts=2, timeout="50ms")
    def stuck() -> None:
        release.wait(TIMEOUT)

    async with hold.worker(poll=0.05):
        job = await stuck.submit()
        with pytest.raises(JobFailed, match=r"no result within 0\.05 s") as raised:
            await job.result(timeout=TIMEOUT)
    release.set()

    assert raised.value.failure.error_class is ErrorClass.NETWORK_TIMEOUT
    assert (await job.read()).attempt == 2
    assert {line["job_id"] for line in logger.lines("thread abandoned")} == {job.id}


@pytest.mark.parametrize("kind", ["thread", "loop"])
async def test_the_timeout_of_a_stage_ends_the_wait_for_it(hold: Holdfast, kind: str) -> None:
    release = threading.Event()
    cancelled = asyncio.Event()

    @hold.stage("stuck in a thread", attempts=2, timeout="50ms")
    def in_thread() -> None:
        release.wait(TIMEOUT)

    @hold.stage("stuck", attempts=2, timeout="50ms")
    async def on_loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @hold.job("caller")
    async def caller() -> str:
        try:
            await (in_thread.in_thread() if kind == "thread" else on_loop())
        except StageFailed as error:
            return error.failure.error_class.value
        return "never"

    async with hold.worker(poll=0.05):
        assert await (await caller.submit()).result(timeout=TIMEOUT) == "NETWORK_TIMEOUT"
    release.set()

    assert cancelled.is_set() == (kind == "loop")


async def test_a_job_that_times_out_is_not_confused_with_one_that_says_so(hold: Holdfast) -> None:
    @hold.job("says", attempts=1, timeout=TIMEOUT)
    async def says() -> None:
        raise TimeoutError("the service was slow")

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed, match="the service was slow"):
            await (await says.submit()).result(timeout=TIMEOUT)


async def test_a_plain_job_that_calls_an_async_stage_fails_with_what_to_do(hold: Holdfast) -> None:
    @hold.stage()
    async def on_loop() -> int:
        return 1

    @hold.job("plain")
    def plain() -> int:
        return cast("int", on_loop())

    async with hold.worker(poll=0.05):
        job = await plain.submit()
        with pytest.raises(JobFailed, match=r"call it as `on_loop.on_loop\(...\)`, or make the job async"):
            await job.result(timeout=TIMEOUT)


async def test_an_async_stage_of_a_plain_job_runs_on_the_loop_and_is_stored(hold: Holdfast) -> None:
    threads: list[threading.Thread] = []
    bodies: list[int] = []

    @hold.stage()
    async def fetch(number: int) -> int:
        threads.append(threading.current_thread())
        await asyncio.sleep(0)
        return number + 1

    @hold.job("plain")
    def plain() -> int:
        page = fetch.on_loop(6)
        bodies.append(page)
        if len(bodies) == 1:
            raise TimeoutError("once")
        return page

    async with hold.worker(poll=0.05):
        assert await (await plain.submit()).result(timeout=TIMEOUT) == 7

    assert threads == [threading.current_thread()]
    assert bodies == [7, 7]


async def test_a_stage_that_is_called_from_the_wrong_kind_of_function_says_which_call_is_right(
    hold: Holdfast,
) -> None:
    @hold.stage()
    async def fetch() -> int:
        return 1

    @hold.stage()
    def parse() -> int:
        return 2

    @hold.job("wrong", attempts=1)
    async def wrong(call: str) -> object:
        if call == "thread":
            return await fetch.in_thread()
        return fetch.on_loop() if call == "loop" else parse.on_loop()  # type: ignore[misc]  # what is tested

    async with hold.worker(poll=0.05):
        for call, right in {
            "thread": r"needs no thread; call it as `await fetch\(...\)`",
            "loop": r"so is its caller; call it as `await fetch\(...\)`",
            "plain": r"needs no loop; call it as `parse\(...\)`",
        }.items():
            with pytest.raises(JobFailed, match=right):
                await (await wrong.submit(call)).result(timeout=TIMEOUT)


def test_outside_a_job_a_stage_just_runs_on_the_loop_and_in_a_thread(hold: Holdfast) -> None:
    @hold.stage()
    async def fetch() -> int:
        return 1

    @hold.stage()
    def parse() -> int:
        return 2

    async def in_async_code() -> tuple[int, int, int]:
        return await fetch(), parse(), await parse.in_thread()

    assert (fetch.on_loop(), asyncio.run(in_async_code())) == (1, (1, 2, 2))


async def test_a_thread_left_behind_starts_no_further_stage(hold: Holdfast) -> None:
    runs: list[int] = []
    stuck, tried = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @hold.stage("send")
    def send() -> None:
        runs.append(1)

    @hold.job("plain", attempts=1, timeout=0.05)
    def plain() -> None:
        stuck.wait(TIMEOUT)
        try:
            send()
        finally:
            loop.call_soon_threadsafe(tried.set)

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed):
            await (await plain.submit()).result(timeout=TIMEOUT)
        stuck.set()
        await asyncio.wait_for(tried.wait(), TIMEOUT)

    assert runs == []
