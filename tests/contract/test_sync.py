"""Code without an event loop uses the same verbs, and blocks until the answer is there."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from holdfast import Backoff, Holdfast, JobFailed, JobFilter, JobFunction, Retryable, Status
from holdfast.errors import (
    ConfigError,
    JobNotFound,
    PayloadInvalid,
    ResultTimeout,
    SignalTimeout,
    StoreUnavailable,
)
from holdfast.types import EventKind
from tests.contract.conftest import Database
from tests.contract.steps import TIMEOUT

THREAD = "holdfast-sync"


@pytest.fixture
def hold(database: Database) -> Iterator[Holdfast]:
    """A Holdfast in plain code."""
    made = Holdfast(database.url, attempts=3, backoff=Backoff.none())
    yield made
    made.close_sync()


@pytest.fixture
def double(hold: Holdfast) -> JobFunction[[int], int]:
    @hold.job("double")
    def double(number: int) -> int:
        if number < 0:
            raise ValueError("less than nothing")
        return 2 * number

    return double


@contextmanager
def a_worker(hold: Holdfast, *, slots: int = 4) -> Iterator[None]:
    """Run a worker in a thread with a loop, as another part of the program would."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    started = threading.Event()

    async def work() -> None:
        async with hold, hold.worker(slots=slots, poll=0.05):
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    assert started.wait(TIMEOUT)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(TIMEOUT)
        loop.close()


def threads_of_ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def test_plain_code_submits_and_waits_for_the_result(hold: Holdfast, double: JobFunction[[int], int]) -> None:
    job = double.submit_sync(21)
    before = job.read_sync().status

    with a_worker(hold):
        assert job.result_sync(timeout=TIMEOUT) == 42

    assert (before, job.read_sync().status) == (Status.QUEUED, Status.COMPLETED)
    assert hold.wait_sync(job.id).result == "42"
    assert EventKind.COMPLETED in [event.kind for event in job.events_sync()]
    assert [found.id for found in hold.find_sync(JobFilter(name="double"))] == [job.id]


def test_a_handle_from_plain_code_can_be_awaited_by_async_code(
    hold: Holdfast, double: JobFunction[[int], int]
) -> None:
    job = double.submit_sync(21)

    async def elsewhere() -> int:
        async with hold, hold.worker(poll=0.05):
            return await job.result(timeout=TIMEOUT)

    assert asyncio.run(elsewhere()) == 42
    assert job.read_sync().status is Status.COMPLETED


def test_the_other_verbs_have_their_twins(hold: Holdfast, double: JobFunction[[int], int]) -> None:
    hold.apply_schema_sync()
    hold.open_sync()
    assert hold.queues.pause_sync("default", actor="Ada")
    failing, waiting = double.submit_sync(-1), double.submit_sync(1)
    assert waiting.cancel_sync() is Status.CANCELLED
    assert hold.queues.resume_sync("default", actor="Ada")

    with a_worker(hold), pytest.raises(JobFailed, match="less than nothing"):
        failing.result_sync(timeout=TIMEOUT)

    assert failing.retry_sync().generation == 2
    assert failing.read_sync().status is Status.QUEUED
    assert hold.cancel_sync(failing.id) is Status.CANCELLED
    assert hold.read_sync(failing.id).generation == 2
    assert hold.events_sync(failing.id) == failing.events_sync()
    with pytest.raises(JobNotFound):
        hold.read_sync(failing.id, owner="another")


def test_what_a_submission_refuses_is_refused_here_too(double: JobFunction[[int], int]) -> None:
    with pytest.raises(PayloadInvalid, match="number"):
        double.submit_sync("many")  # type: ignore[arg-type]  # what a careless caller may pass
    with pytest.raises(PayloadInvalid, match="one by one"):
        double.options(key="k").submit_many_sync([(1,)])


def test_keys_and_other_options_hold(double: JobFunction[[int], int]) -> None:
    first = double.options(key="k", priority=7).submit_sync(1)
    second = double.options(key="k").submit_sync(1)

    assert (second.id, second.existing, first.read_sync().priority) == (first.id, True, 7)


def test_many_are_submitted_in_one_call(hold: Holdfast, double: JobFunction[[int], int]) -> None:
    made = double.submit_many_sync([(number,) for number in range(4_500)])

    assert len({job.id for job in made}) == 4_500
    assert made[-1].read_sync().args == '{"number":4499}'


def test_a_job_that_has_not_ended_in_time_goes_on(hold: Holdfast, double: JobFunction[[int], int]) -> None:
    job = double.submit_sync(3)

    with pytest.raises(ResultTimeout):
        job.result_sync(timeout=0.01)
    with a_worker(hold):
        assert job.result_sync(timeout=TIMEOUT) == 6


def test_fifty_threads_submit_at_once_through_one_loop(
    hold: Holdfast, double: JobFunction[[int], int]
) -> None:
    together = threading.Barrier(50)

    def submits(number: int) -> list[str]:
        together.wait(TIMEOUT)
        return [double.submit_sync(number).id for _ in range(5)]

    with ThreadPoolExecutor(50) as pool:
        ids = {one for some in pool.map(submits, range(50)) for one in some}

    assert len(ids) == 250
    assert {job.id for job in hold.find_sync(JobFilter(limit=1_000))} == ids
    assert len(threads_of_ours()) == 1


def test_a_close_ends_the_thread_and_the_next_call_starts_another(double: JobFunction[[int], int]) -> None:
    hold = double._hold
    first = double.submit_sync(1)
    hold.close_sync()
    after_close = threads_of_ours()
    second = double.submit_sync(2)

    assert after_close == []
    assert (first.read_sync().status, second.read_sync().status) == (Status.QUEUED, Status.QUEUED)
    assert len(threads_of_ours()) == 1


def test_a_close_ends_the_calls_that_still_wait_with_an_error(
    hold: Holdfast, double: JobFunction[[int], int]
) -> None:
    job = double.submit_sync(1)
    waits = threading.Event()

    def waiting() -> int:
        waits.set()
        return job.result_sync()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(waiting)
        assert waits.wait(TIMEOUT)
        while not answer.done():  # the close may come before the wait has begun: then the wait begins anew
            hold.close_sync()
        with pytest.raises(StoreUnavailable, match="closed"):
            answer.result(TIMEOUT)


def test_closing_what_was_never_used_is_no_trouble(database: Database) -> None:
    hold = Holdfast(database.url)

    hold.close_sync()

    assert threads_of_ours() == []


class Interrupt(Exception):
    """Raised in the middle of a wait, as Ctrl-C would be."""


def test_a_wait_that_is_interrupted_leaves_the_others_alone(
    hold: Holdfast, double: JobFunction[[int], int]
) -> None:
    job = double.submit_sync(1)

    def interrupt(*_: object) -> None:
        raise Interrupt

    def interrupted() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        job.result_sync()

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interrupt):
            interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert job.read_sync().status is Status.QUEUED


async def test_on_the_thread_of_a_running_loop_it_says_what_to_write_instead(
    hold: Holdfast, double: JobFunction[[int], int]
) -> None:
    handle = hold.handle("01900000-0000-7000-8000-000000000000")

    with pytest.raises(ConfigError, match=r"submit_sync\(\) blocks.*write `await submit\(...\)` instead"):
        double.submit_sync(1)
    with pytest.raises(ConfigError, match=r"write `await submit_many\(...\)` instead"):
        double.submit_many_sync([(1,)])
    with pytest.raises(ConfigError, match=r"read_sync\(\) blocks.*write `await read\(...\)` instead"):
        hold.read_sync(handle.id)
    with pytest.raises(ConfigError, match=r"result_sync\(\) blocks.*write `await result\(...\)` instead"):
        handle.result_sync()
    assert threads_of_ours() == []


def in_a_child(work: Callable[[], None]) -> int:
    """Fork, let the child *work*, and give its process id; it exits with 0 if all went well."""
    child = os.fork()
    if child:
        return child
    failed = 1
    try:
        signal.alarm(int(TIMEOUT))  # a child that hangs shall not hang the test
        work()
        failed = 0
    finally:
        os._exit(failed)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("used_before", [True, False], ids=["used before", "not used before"])
def test_a_forked_child_starts_anew_and_the_parent_goes_on(
    hold: Holdfast, double: JobFunction[[int], int], used_before: bool
) -> None:
    if used_before:
        double.options(key="parent").submit_sync(1)

    def work() -> None:
        assert threads_of_ours() == []
        double.options(key="child").submit_sync(2)
        hold.close_sync()

    codes = [exit_code(in_a_child(work)) for _ in range(3)]
    double.options(key="parent").submit_sync(1)

    assert codes == [0, 0, 0]
    assert len(hold.find_sync()) == 2


def test_children_of_a_busy_parent_do_not_hang(hold: Holdfast, double: JobFunction[[int], int]) -> None:
    enough = threading.Event()

    def busy() -> int:
        count = 0
        while not enough.is_set():
            double.submit_sync(0)
            count += 1
        return count

    def work() -> None:
        for _ in range(5):
            double.submit_sync(1)

    with ThreadPoolExecutor(4) as pool:
        parents = [pool.submit(busy) for _ in range(4)]
        children = [in_a_child(work) for _ in range(6)]
        codes = [exit_code(child) for child in children]
        enough.set()
        by_parents = sum(parent.result(TIMEOUT) for parent in parents)

    assert codes == [0] * 6
    stored = hold.find_sync(JobFilter(limit=1_000_000))
    assert len(stored) == by_parents + 6 * 5


def test_a_program_that_closes_nothing_ends_quietly(database: Database) -> None:
    program = f"""
from holdfast import Holdfast

hold = Holdfast({database.url!r})

@hold.job("noop")
def noop() -> None: ...

print(noop.submit_sync().read_sync().status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "queued\n", "")


def test_a_plain_job_submits_once_however_often_it_is_tried(
    hold: Holdfast, double: JobFunction[[int], int]
) -> None:
    tries: list[str] = []

    @hold.job("parent")
    def parent() -> str:
        tries.append(double.submit_sync(4).id)
        if len(tries) == 1:
            raise Retryable("once more")
        return tries[-1]

    with a_worker(hold):
        made = parent.submit_sync().result_sync(timeout=TIMEOUT)

    assert tries == [made, made]


def test_a_plain_job_waits_for_others_without_a_slot(hold: Holdfast, double: JobFunction[[int], int]) -> None:
    runs: list[None] = []

    @hold.job("parent")
    def parent() -> int:
        runs.append(None)
        children = [double.submit_sync(number) for number in (1, 2)]
        return sum(child.result_sync() for child in children)

    job = parent.submit_sync()
    with a_worker(hold, slots=1):
        assert job.result_sync(timeout=TIMEOUT) == 6

    assert len(runs) > 1


def test_a_plain_job_sleeps_and_waits_for_signals(hold: Holdfast) -> None:
    @hold.job("waiting")
    def waiting() -> object:
        hold.sleep_sync("10ms")
        signalled = hold.wait_for_sync("go")
        try:
            hold.wait_for_sync("more", timeout="10ms")
        except SignalTimeout:
            return signalled
        return "too much"

    job = waiting.submit_sync()
    with a_worker(hold, slots=1):
        hold.signal_sync(job.id, "go", {"at": "once"})
        assert job.result_sync(timeout=TIMEOUT) == {"at": "once"}


def test_outside_a_job_there_is_nothing_to_put_to_sleep(hold: Holdfast) -> None:
    with pytest.raises(ConfigError, match=r"sleep\(\) was called outside a job"):
        hold.sleep_sync("1s")


async def test_a_plain_job_needs_no_thread_beside_its_worker(
    hold: Holdfast, double: JobFunction[[int], int]
) -> None:
    @hold.job("parent")
    def parent() -> list[str]:
        double.submit_sync(4)
        return [thread.name for thread in threads_of_ours()]

    async with hold, hold.worker(poll=0.05):
        assert await (await parent.submit()).result(timeout=TIMEOUT) == []
