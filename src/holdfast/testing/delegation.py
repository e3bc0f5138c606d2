"""Delegates the work of a `Holdfast` to a twin during a test.

The twin has the same jobs, stages, settings and rules, and another runtime. In the object itself only the portal of
the `_sync` methods is replaced, and restored afterwards.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import getmembers, iscoroutinefunction
from typing import Any, TypeVar

from holdfast.app import Holdfast
from holdfast.app.portal import Portal, refuse_on_a_loop, result_of
from holdfast.core.errors import ConfigError
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.core.messages.outbox import NewMessage
from holdfast.engine.execution.context import CURRENT
from holdfast.engine.runtime import Runtime
from holdfast.testing.captured_messages import CapturedMessages

T = TypeVar("T")

PASSED_ON = (
    "open",
    "close",
    "apply_schema",
    "worker",
    "wait",
    "read",
    "find",
    "events",
    "cancel",
    "retry",
    "sleep",
    "wait_for",
    "signal",
    "accept_late",
    "feed",
    "_consume_again",
    "_end_of",
    "_submit",
    "_publish",
    "_new_id",
)
"""The methods that use a store, a worker or an id. Methods that declare jobs or only read a value are not replaced.

The `_sync` methods are not listed: they use the `TwinPortal`."""

SERVICES = ("jobs", "dead_letters", "providers", "queues", "schedules", "outbox", "database")
"""The services of a `Holdfast`: all their async methods touch the store."""

_delegating = threading.Lock()


class Twin(Holdfast):
    """A copy of *original* with another runtime; it is not configured from the environment again."""

    def __init__(self, original: Holdfast, runtime: Runtime, captured: CapturedMessages) -> None:
        own = {name: value for name, value in vars(original).items() if name not in PASSED_ON}
        vars(self).update(own)
        self.captured = captured
        self._use(runtime)

    async def _submit(self, batch: Sequence[Submission], within: Any = None) -> list[Receipt]:
        """Store calls at once: a transaction of another database cannot be joined."""
        return await super()._submit(batch)

    async def _publish(self, batch: Sequence[NewMessage], within: Any = None) -> None:
        """Store messages at once: a transaction of another database cannot be joined."""
        await super()._publish(batch)
        self.captured.add(batch)


class TwinPortal(Portal):
    """The portal of blocking calls during a test: to the twin, never to the user's database."""

    def __init__(self, hold: Holdfast, twin_here: Callable[[], Twin]) -> None:
        super().__init__(hold)
        self._twin_here = twin_here

    def run(self, verb: str, ask: Callable[[Holdfast], Coroutine[Any, Any, T]]) -> T:
        """Await *ask*: in a plain job on the loop of its worker, elsewhere on a loop for this call."""
        refuse_on_a_loop(verb)

        async def there() -> T:
            return await ask(self._twin_here())

        job = CURRENT.get()
        if job is not None:
            return result_of(asyncio.run_coroutine_threadsafe(there(), job.loop))
        return _blocking(there)

    def submit_here(self, batch: Sequence[Submission], within: Any) -> list[Receipt]:
        """Store calls at once: a transaction of another database cannot be joined."""
        return self.run("submit", lambda twin: twin._submit(batch))

    def publish_here(self, batch: Sequence[NewMessage], within: Any) -> None:
        """Store messages at once: a transaction of another database cannot be joined."""
        self.run("publish", lambda twin: twin._publish(batch))

    def new_id(self) -> str:
        """Return an id for a job. In the thread of a plain job, which has no loop, it comes from that of its worker."""
        if CURRENT.get() is None or asyncio._get_running_loop() is not None:
            return self._twin_here()._new_id()
        return self.run("submit", _new_id)


async def _new_id(twin: Holdfast) -> str:
    return twin._new_id()


def _blocking(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    if "django" not in sys.modules:
        return asyncio.run(ask())
    from asgiref.sync import async_to_sync  # noqa: PLC0415 - it comes with Django

    return async_to_sync(ask)()  # plain jobs then run in this thread, in the test's transaction


@contextmanager
def delegated_to(hold: Holdfast, twin_here: Callable[[], Twin]) -> Iterator[None]:
    """Delegate the work of *hold* to the twin that *twin_here* returns, while the block runs."""
    with _delegating:
        if "_submit" in vars(hold):
            raise ConfigError(
                "this Holdfast is in a simulation or in inline() already; one test at a time can have it"
            )
        own, portal = hold._portal, TwinPortal(hold, twin_here)
        passed_on = {name: _delegate(getattr(Holdfast, name), twin_here) for name in PASSED_ON}
        passed_on |= {"_new_id": portal.new_id, "_submit_here": portal.submit_here}
        passed_on |= {"_publish_here": portal.publish_here}
        vars(hold).update(passed_on, _portal=portal)
        for service in SERVICES:
            vars(getattr(hold, service)).update(_passed_on_of(hold, service, twin_here))
    try:
        yield
    finally:
        for service in SERVICES:
            for name in _passed_on_of(hold, service, twin_here):
                del vars(getattr(hold, service))[name]
        for name in passed_on:
            del vars(hold)[name]
        hold._portal = own


def _delegate(method: Callable[..., Any], owner_here: Callable[[], object]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(owner_here(), method.__name__)(*args, **kwargs)

    return call


def _passed_on_of(
    hold: Holdfast, service: str, twin_here: Callable[[], Twin]
) -> dict[str, Callable[..., Any]]:
    """Return the async methods of a service, passed on to the same service of the twin."""
    methods = getmembers(type(getattr(hold, service)), iscoroutinefunction)
    return {
        name: _delegate(method, lambda: getattr(twin_here(), service))
        for name, method in methods
        if not name.startswith("_")
    }
