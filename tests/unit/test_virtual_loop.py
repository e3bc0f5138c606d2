"""Virtual time: it passes when every task waits, never else, and real threads and sockets are waited for."""

import asyncio
import random
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest

from holdfast.testing.virtual_loop import Stuck, VirtualLoop

T = TypeVar("T")

A_YEAR = 365 * 24 * 3600.0

WHO: ContextVar[str] = ContextVar("who", default="")


@contextmanager
def opened(loop: VirtualLoop) -> Iterator[VirtualLoop]:
    try:
        yield loop
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def run(main: Coroutine[Any, Any, T], chance: random.Random | None = None) -> T:
    """Run *main* on a virtual loop of its own."""
    with opened(VirtualLoop(chance)) as loop:
        return loop.run_until_complete(main)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_year_passes_in_one_step() -> None:
    async def main() -> float:
        await asyncio.sleep(A_YEAR)
        return now()

    assert run(main()) == A_YEAR


def test_time_stands_still_while_there_is_something_to_do() -> None:
    async def main() -> float:
        for _ in range(1_000):
            await asyncio.sleep(0)
        return now()

    assert run(main()) == 0


def test_timers_run_in_the_order_of_their_time() -> None:
    async def main() -> list[tuple[str, float]]:
        seen = []

        async def wait(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, now()))

        await asyncio.gather(wait("third", 30), wait("first", 10), wait("second", 20))
        return seen

    assert run(main()) == [("first", 10), ("second", 20), ("third", 30)]


def test_a_cancelled_timer_takes_no_time() -> None:
    async def main() -> float:
        asyncio.get_running_loop().call_later(1_000, pytest.fail, "it was cancelled").cancel()
        await asyncio.sleep(10)
        return now()

    assert run(main()) == 10


def test_many_cancelled_timers_are_forgotten() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        for timer in [loop.call_later(5, pytest.fail, "it was cancelled") for _ in range(500)]:
            timer.cancel()
        await asyncio.sleep(10)
        return now()

    assert run(main()) == 10


def test_a_timeout_fires_at_its_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return now()

    assert run(main()) == 60


def test_no_timer_runs_before_its_time_by_the_clock() -> None:
    async def main() -> None:
        await asyncio.sleep(0.1)
        due = now() + 1e-7
        while now() < due:  # would never end on a loop that calls a timer due, and leaves the clock behind
            await asyncio.sleep(due - now())

    run(main())


def test_nothing_left_to_happen_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="every task waits"):
        run(main())


def test_virtual_time_waits_for_a_thread() -> None:
    async def main() -> list[str]:
        began, seen = threading.Event(), []

        def work() -> None:
            began.wait()
            seen.append("the thread")

        async def wait_long() -> None:
            await asyncio.sleep(A_YEAR)
            seen.append("a year")

        waiting = asyncio.create_task(wait_long())
        working = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.sleep(0)
        began.set()
        await asyncio.gather(waiting, working)
        return seen

    assert run(main()) == ["the thread", "a year"]


def test_virtual_time_goes_on_without_a_thread_that_is_given_up() -> None:
    release = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        answer = loop.run_in_executor(None, release.wait)
        loop.waits_no_more(answer)
        await asyncio.sleep(A_YEAR)
        passed = now()
        release.set()
        await answer
        return passed

    assert run(main()) == A_YEAR


def test_a_callback_of_a_foreign_thread_runs_before_the_loop_calls_itself_stuck() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(answer.set_result, "hello"))
        thread.start()
        result = await answer
        thread.join()
        return result

    assert run(main()) == "hello"


def test_a_socket_is_read_before_time_moves_on() -> None:
    async def main() -> tuple[bytes, float]:
        here, there = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=here)
        there.send(b"hello")
        async with asyncio.timeout(A_YEAR):
            received = await reader.readexactly(5)
        writer.close()
        there.close()
        return received, now()

    received, passed = run(main())

    assert (received, passed < A_YEAR) == (b"hello", True)


def test_settled_comes_after_all_that_can_happen_now() -> None:
    async def main() -> tuple[list[str], float]:
        seen = []

        async def slowly() -> None:
            for _ in range(50):
                await asyncio.sleep(0)
            seen.append("slowly")
            await asyncio.sleep(1)
            seen.append("a second later")

        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        task = asyncio.create_task(slowly())
        await loop.settled()
        result = list(seen), now()
        await task
        return result

    assert run(main()) == (["slowly"], 0)


def test_one_who_gave_up_waiting_for_calm_is_passed_over() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.settled().cancel()
        await loop.settled()

    run(main())


async def who_comes_when() -> list[int]:
    seen: list[int] = []

    async def come(number: int) -> None:
        await asyncio.sleep(0)
        seen.append(number)

    await asyncio.gather(*(come(number) for number in range(10)))
    return seen


def test_without_chance_callbacks_run_in_the_order_of_asyncio() -> None:
    assert run(who_comes_when()) == list(range(10))


def test_chance_decides_the_order_of_what_is_ready() -> None:
    sequences = {tuple(run(who_comes_when(), random.Random(seed))) for seed in range(5)}

    assert len(sequences) == 5


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_order(seed: int) -> None:
    assert run(who_comes_when(), random.Random(seed)) == run(who_comes_when(), random.Random(seed))


def admitting(admits: Callable[[str], bool]) -> tuple[VirtualLoop, list[asyncio.Handle]]:
    """Make a loop that keeps what is not admitted, by the name in its context."""
    kept: list[asyncio.Handle] = []

    def ask(handle: asyncio.Handle) -> bool:
        admitted = admits(handle._context.get(WHO))  # type: ignore[attr-defined]
        if not admitted:
            kept.append(handle)
        return admitted

    return VirtualLoop(admits=ask), kept


def as_(who: str, main: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    async def named() -> T:
        WHO.set(who)
        return await main()

    return asyncio.create_task(named())


def test_what_is_not_admitted_does_not_run_until_it_is_handed_back() -> None:
    stopped = {"bob"}
    loop, kept = admitting(lambda who: who not in stopped)
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(10)
        seen.append(WHO.get())

    async def main() -> list[str]:
        ada, bob = as_("ada", work), as_("bob", work)
        await ada
        await asyncio.sleep(100)
        before = list(seen)
        stopped.clear()
        loop.readmit(kept)
        await bob
        return before

    with opened(loop):
        assert loop.run_until_complete(main()) == ["ada"]

    assert seen == ["ada", "bob"]


def test_a_thread_is_not_waited_for_after_its_answer_came_to_one_who_is_not_admitted() -> None:
    dead: set[str] = set()
    loop, _ = admitting(lambda who: who not in dead)
    release = threading.Event()

    async def main() -> float:
        task = asyncio.ensure_future(as_("bob", lambda: asyncio.to_thread(release.wait)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        dead.add("bob")
        release.set()
        await asyncio.sleep(A_YEAR)
        assert not task.done()
        dead.clear()
        return now()

    with opened(loop):
        assert loop.run_until_complete(main()) >= A_YEAR


def test_no_call_from_a_thread_is_lost_while_callbacks_are_sorted() -> None:
    loop, _ = admitting(lambda who: True)
    total = 2_000
    received = 0

    def receive() -> None:
        nonlocal received
        received += 1

    def send() -> None:
        for _ in range(total):
            loop.call_soon_threadsafe(receive)

    async def main() -> int:
        sending = asyncio.create_task(asyncio.to_thread(send))
        while not sending.done():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return received

    with opened(loop):
        assert loop.run_until_complete(main()) == total
