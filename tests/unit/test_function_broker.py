"""A function in the place of a broker: what it raises says whose fault it is, and how long it takes is bounded."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from holdfast.brokers.function_broker import FunctionBroker
from holdfast.core.errors import BrokerUnavailable, ConfigError, MessageRefused, RouteRefused
from holdfast.core.messages.broker_message import OutgoingMessage, Route
from holdfast.engine.registry import BrokerSpec
from holdfast.wiring.assemble import open_broker
from holdfast.wiring.threads import Threads

T = TypeVar("T")

MESSAGE = OutgoingMessage("m1", "grading.request", Route("local", "", "grading.request"), b"{}", {})


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads("test-broker")
    yield made
    made.close()


async def test_a_plain_function_is_called_in_a_thread(threads: Threads) -> None:
    calls: list[tuple[OutgoingMessage, str]] = []
    broker = FunctionBroker(
        lambda message: calls.append((message, threading.current_thread().name)),
        name="local",
        executor=threads,
    )

    await broker.publish(MESSAGE)

    [(message, thread)] = calls
    assert message == MESSAGE
    assert thread.startswith("test-broker")


async def test_an_async_function_is_awaited_on_the_event_loop(threads: Threads) -> None:
    received: list[OutgoingMessage] = []

    class Target:
        async def __call__(self, message: OutgoingMessage) -> None:
            await asyncio.sleep(0)
            received.append(message)

    await FunctionBroker(Target(), name="local", executor=threads).publish(MESSAGE)

    assert received == [MESSAGE]


async def test_a_plain_function_may_return_an_awaitable(threads: Threads) -> None:
    received: list[OutgoingMessage] = []

    async def receive(message: OutgoingMessage) -> None:
        received.append(message)

    def forward(message: OutgoingMessage) -> Awaitable[None]:
        return receive(message)

    await FunctionBroker(forward, name="local", executor=threads).publish(MESSAGE)

    assert received == [MESSAGE]


@pytest.mark.parametrize("error", [BrokerUnavailable("down"), RouteRefused("no such queue")])
async def test_the_errors_of_a_broker_pass_through(threads: Threads, error: Exception) -> None:
    def refuse(_: OutgoingMessage) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await FunctionBroker(refuse, name="local", executor=threads).publish(MESSAGE)

    assert raised.value is error


@pytest.mark.parametrize("error", [ValueError("too long"), SystemExit(3)])
async def test_any_other_error_is_the_fault_of_the_message(threads: Threads, error: BaseException) -> None:
    def refuse(_: OutgoingMessage) -> None:
        raise error

    with pytest.raises(MessageRefused, match=type(error).__name__) as raised:
        await FunctionBroker(refuse, name="local", executor=threads).publish(MESSAGE)

    assert raised.value.__cause__ is error


async def test_a_function_that_cancels_itself_does_not_cancel_the_relay(threads: Threads) -> None:
    async def leave(_: OutgoingMessage) -> None:
        raise asyncio.CancelledError

    with pytest.raises(MessageRefused, match="cancelled"):
        await FunctionBroker(leave, name="local", executor=threads).publish(MESSAGE)


async def test_a_function_that_hangs_is_an_unavailable_broker(threads: Threads) -> None:
    async def hang(_: OutgoingMessage) -> None:
        await asyncio.Event().wait()

    with pytest.raises(BrokerUnavailable, match="did not return within"):
        await FunctionBroker(hang, name="local", executor=threads, timeout=0.01).publish(MESSAGE)


async def test_a_message_whose_call_hangs_in_a_thread_is_not_published_beside_it(threads: Threads) -> None:
    calls: list[str] = []
    called, answer, returned = threading.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(message: OutgoingMessage) -> None:
        calls.append(message.id)
        called.set()
        answer.wait()
        loop.call_soon_threadsafe(returned.set)

    broker = FunctionBroker(hang, name="local", executor=threads, timeout=0.01)
    for _ in range(2):
        with pytest.raises(BrokerUnavailable):
            await broker.publish(MESSAGE)
    await asyncio.to_thread(called.wait)
    assert calls == ["m1"]

    answer.set()
    await returned.wait()


async def test_without_a_thread_the_broker_is_unavailable() -> None:
    class NoThreads:
        def run(self, function: Callable[[], T]) -> Awaitable[T]:
            raise RuntimeError("can't start new thread")

        def close(self) -> None: ...

    with pytest.raises(BrokerUnavailable, match="no thread"):
        await FunctionBroker(lambda _: None, name="local", executor=NoThreads()).publish(MESSAGE)


async def test_a_function_has_no_queues_to_consume(threads: Threads) -> None:
    with pytest.raises(
        ConfigError, match=r"'local' is a function and delivers nothing, so 'grading.request'"
    ):
        FunctionBroker(print, name="local", executor=threads).subscribe("grading.request", prefetch=1)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("amqp://user:secret@host/", "rabbitmq", "rabbitmq"),
        ("redis://:secret@host/0", "redis_streams", "redis"),
    ],
)
async def test_an_address_whose_package_is_missing_says_what_to_install(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, f"holdfast.brokers.{module}", None)  # as if an import in it failed

    with pytest.raises(ConfigError, match=rf"pip install 'holdfast\[{extra}\]'") as raised:
        open_broker(BrokerSpec("main", url=url), executor=threads)

    assert "secret" not in str(raised.value)


async def test_a_declared_function_is_opened_without_being_called(threads: Threads) -> None:
    calls: list[OutgoingMessage] = []

    broker = open_broker(BrokerSpec("local", function=calls.append), executor=threads)

    assert await broker.check() == "a Python function"
    await broker.close()
    assert calls == []
