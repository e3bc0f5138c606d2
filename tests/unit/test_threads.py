"""Threads for functions that block: made when needed, and again after they have left."""

import asyncio
import threading

import pytest

from holdfast.wiring.threads import Threads, ThreadWatchdog

TIMEOUT = 10


async def test_a_call_is_run_after_all_threads_have_left() -> None:
    threads = Threads("leaving", limit=1)
    go = threading.Event()
    calls = [threads.run(go.wait), threads.run(lambda: True), threads.run(lambda: True)]
    go.set()
    await asyncio.gather(*calls)

    threads.close()
    for thread in threading.enumerate():
        if thread.name.startswith("leaving"):
            thread.join(TIMEOUT)

    async with asyncio.timeout(TIMEOUT):
        assert await threads.run(lambda: "run") == "run"


async def test_calls_that_block_do_not_keep_others_waiting() -> None:
    threads = Threads("test")
    go = threading.Event()
    hanging = [threads.run(go.wait) for _ in range(20)]

    async with asyncio.timeout(TIMEOUT):
        assert await threads.run(lambda: "run") == "run"

    go.set()
    await asyncio.gather(*hanging)


async def test_a_limit_bounds_how_many_run_at_once() -> None:
    threads = Threads("test", limit=1)

    seen = await asyncio.gather(*(threads.run(threading.get_ident) for _ in range(50)))

    assert len(set(seen)) == 1


async def test_a_machine_without_threads_refuses_a_call_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Threads("test", limit=1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread_left)
        with pytest.raises(RuntimeError, match="new thread"):
            threads.run(lambda: "refused")

    async with asyncio.timeout(TIMEOUT):
        assert await threads.run(lambda: "run") == "run"


def _no_thread_left(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_a_watchdog_looks_while_the_loop_is_blocked_and_closes_in_the_end() -> None:
    looks = threading.Semaphore(0)
    closed: list[str] = []

    def check() -> float:
        looks.release()
        return 0.001

    stop = ThreadWatchdog("watching").start(
        check, close=lambda: closed.append(threading.current_thread().name)
    )
    for _ in range(3):
        assert looks.acquire(timeout=TIMEOUT)  # blocks the loop

    await stop()

    assert closed == ["watching"]


async def test_a_watchdog_whose_check_hangs_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.wiring.threads.STOP_TIMEOUT", 0.01)
    hangs, goes_on, closed = threading.Event(), threading.Event(), threading.Event()

    def check() -> float:
        hangs.set()
        goes_on.wait()
        return 0.0

    stop = ThreadWatchdog("hanging").start(check, close=closed.set)
    assert hangs.wait(TIMEOUT)
    async with asyncio.timeout(TIMEOUT):
        await stop()

    assert not closed.is_set()
    goes_on.set()
    assert closed.wait(TIMEOUT)
