"""Coroutines that run without an event loop."""

import asyncio

import pytest

from holdfast.aio.coroutines import run_here


async def three() -> int:
    return 3


def test_a_coroutine_that_never_waits_gives_its_result_at_once() -> None:
    assert run_here(three()) == 3


def test_it_may_await_others_that_never_wait() -> None:
    async def seven() -> int:
        return await three() + 4

    assert run_here(seven()) == 7


def test_its_error_reaches_the_caller() -> None:
    async def fails() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        run_here(fails())


def test_one_that_waits_is_refused_and_closed() -> None:
    closed: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append("closed")

    with pytest.raises(RuntimeError, match=r"waits.* waits for something that never wakes it here$"):
        run_here(waits())

    assert closed == ["closed"]
