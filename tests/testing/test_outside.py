"""What a simulation waits for in real time: threads, whichever code started them."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from queue import SimpleQueue
from typing import Annotated

import httpx
from fastapi import Depends, FastAPI

from holdfast import Backoff, Holdfast
from holdfast.testing import Simulation, simulated

hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db", backoff=Backoff.constant(300))
app = FastAPI()

Question = tuple[asyncio.AbstractEventLoop, "asyncio.Future[str]"]


class Driver:
    """A database driver with a thread of its own, which the simulation does not know."""

    def __init__(self) -> None:
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="some driver")

    async def ask(self) -> str:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._questions.put((loop, answer))
        return await answer  # type: ignore[no-any-return]

    @contextmanager
    def open(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._questions.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            loop, answer = question
            loop.call_soon_threadsafe(answer.set_result, "an answer")


@hold.job("ask", attempts=1, timeout="365d")
async def ask() -> str:
    return await driver[0].ask()


driver: list[Driver] = []


def settings() -> str:
    """Be called by FastAPI in a thread, and take a moment of real time."""
    time.sleep(0.001)
    return "the settings"


@app.get("/")
async def show(given: Annotated[str, Depends(settings)]) -> str:
    return given


@app.get("/plain")
def show_plainly() -> str:
    time.sleep(0.001)
    return "plain"


@simulated(hold)
async def test_an_answer_from_the_thread_of_an_unknown_driver_arrives(sim: Simulation) -> None:
    driver[:] = [Driver()]

    with driver[0].open():
        assert await (await ask.submit()).result() == "an answer"


@simulated(hold)
async def test_a_plain_function_of_fastapi_takes_hardly_any_virtual_time(sim: Simulation) -> None:
    began = sim.now
    waiting = asyncio.create_task(asyncio.sleep(10 * 365 * 86_400))

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answers = [(await client.get(path)).json() for path in ("/", "/plain", "/")]

    assert answers == ["the settings", "plain", "the settings"]
    assert sim.now - began < timedelta(days=1)
    waiting.cancel()


@simulated(hold)
async def test_the_answer_of_a_thread_comes_before_the_next_timer(sim: Simulation) -> None:
    waiting = asyncio.create_task(asyncio.sleep(10 * 365 * 86_400))

    assert await asyncio.to_thread(lambda: "done") == "done"

    assert not waiting.done()
    waiting.cancel()
