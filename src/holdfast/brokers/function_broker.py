"""A Python function in the place of a broker: it is called with each message, and its return confirms the message."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from holdfast.core.errors import BrokerError, BrokerUnavailable, ConfigError, MessageRefused
from holdfast.core.messages.broker_message import OutgoingMessage
from holdfast.ports import Executor, Subscription

TIMEOUT = 30.0
"""Seconds that the function may take for one message."""


class FunctionBroker:
    """The `Broker` port on a function: a plain one runs in a thread, an async one on the event loop.

    The function may raise `BrokerUnavailable`, `RouteRefused` or `RouteFull`; any other error is the message's own fault.
    """

    def __init__(
        self,
        function: Callable[[OutgoingMessage], Any],
        *,
        name: str,
        executor: Executor,
        timeout: float = TIMEOUT,
    ) -> None:
        self._function = function
        self._name = name
        self._executor = executor
        self._timeout = timeout
        self._in_threads: set[str] = set()

    async def publish(self, message: OutgoingMessage) -> None:
        """Call the function in a task of its own, so that what it cancels is not the caller."""
        call = asyncio.create_task(self._call(message), name=f"holdfast broker {self._name}")
        try:
            await asyncio.wait([call], timeout=self._timeout)
        finally:
            call.cancel()
        if not call.done():
            raise BrokerUnavailable(
                f"the function of broker {self._name!r} did not return within {self._timeout:g} s"
            )
        if call.cancelled():
            raise MessageRefused(f"the function of broker {self._name!r} was cancelled")
        call.result()

    async def _call(self, message: OutgoingMessage) -> None:
        try:
            answer = (
                self._function(message) if _is_async(self._function) else await self._call_in_thread(message)
            )
            if inspect.isawaitable(answer):
                await answer
        except BrokerError:
            raise
        except (Exception, SystemExit) as error:  # user code, which may raise anything
            raise MessageRefused(f"{type(error).__name__}: {error}") from error

    def _call_in_thread(self, message: OutgoingMessage) -> Awaitable[Any]:
        """Call a plain function. A thread cannot be stopped: a message whose call hangs is not published beside it."""
        if message.id in self._in_threads:
            raise BrokerUnavailable(
                f"the function of broker {self._name!r} has not returned from an earlier call with this message"
            )

        def call() -> Any:
            try:
                return self._function(message)
            finally:
                self._in_threads.discard(message.id)

        self._in_threads.add(message.id)
        try:
            return self._executor.run(call)
        except RuntimeError:
            self._in_threads.discard(message.id)
            raise BrokerUnavailable("there is no thread to call a plain function in") from None

    def subscribe(self, queue: str, *, prefetch: int) -> AbstractAsyncContextManager[Subscription]:
        """Raise `ConfigError`: a function has no queues."""
        raise ConfigError(
            f"broker {self._name!r} is a function and delivers nothing, so {queue!r} cannot be consumed from it; "
            "declare the consumer with a broker that has an address"
        )

    async def check(self) -> str:
        """Return that there is nothing to connect to; the function is not called."""
        return "a Python function"

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    )
