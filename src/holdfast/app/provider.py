"""Providers: outside services as an application declares and calls them."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast.core.errors import ConfigError
from holdfast.core.providers.provider import ProviderSpec, checked_key
from holdfast.engine.execution.context import CALLING, CURRENT

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from contextvars import Token
    from types import TracebackType

    from holdfast.engine.execution.job_context import JobContext
    from holdfast.engine.execution.provider_calls import ProviderCall

T = TypeVar("T")


class Provider:
    """An outside service. Give it to `@hold.stage(provider=…)`, or take a permit for a single call."""

    def __init__(self, spec: ProviderSpec) -> None:
        self.spec = spec

    @property
    def name(self) -> str:
        """The name under which all workers share its state."""
        return self.spec.name

    def permit(self, *, key: object = "") -> "PermitBlock":
        """Make a call in the block, if the provider's breaker and its limits allow it.

        If not, the job is held: its function ends here, and runs again when the call can be made. Use it as
        `async with`, or in a plain function as `with`. The block gets the name of the provider to call, which may be
        that of a backup. An error that leaves the block is reported to the breaker. Outside a job, every call is made.
        """
        try:
            return PermitBlock(self.spec, checked_key(key))
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def __repr__(self) -> str:
        return f"<Provider {self.name!r}>"


class PermitBlock:
    """Permission to make a call, for as long as the block lasts."""

    def __init__(self, spec: ProviderSpec, key: str) -> None:
        self._spec = spec
        self._key = key
        self._calling: AbstractAsyncContextManager[ProviderCall] | None = None
        self._job: JobContext | None = None
        self._outer: Token[tuple[ProviderCall, ...]] | None = None
        self._used = False

    def __call__(self, *_: object) -> NoReturn:
        raise ConfigError(
            f"a permit of {self._spec.name!r} guards a block, not a function; use @hold.stage(provider=…)"
        )

    async def __aenter__(self) -> str:
        self._use()
        job = CURRENT.get()
        if job is None:
            return self._spec.name
        call = await self._entered(job)
        self._outer = CALLING.set((*CALLING.get(), call))
        return call.called

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> bool | None:
        self._reset()
        return None if self._calling is None else await self._calling.__aexit__(kind, error, trace)

    def __enter__(self) -> str:
        self._use()
        self._job = CURRENT.get()
        if self._job is None:
            return self._spec.name
        call = self._on_loop(self._job, self._entered(self._job))
        self._outer = CALLING.set((*CALLING.get(), call))
        return call.called

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> bool | None:
        self._reset()
        if self._job is None or self._calling is None:
            return None
        return self._on_loop(self._job, self._left(self._calling, kind, error, trace))

    def _use(self) -> None:
        """Mark it as used: it is for one call."""
        if self._used:
            raise ConfigError(
                f"a permit of {self._spec.name!r} is for one call; request one for each, with `.permit()`"
            )
        self._used = True

    async def _entered(self, job: "JobContext") -> "ProviderCall":
        self._calling = job.calling(self._spec, self._key)
        return await self._calling.__aenter__()

    async def _left(
        self,
        calling: "AbstractAsyncContextManager[ProviderCall]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> bool | None:
        return await calling.__aexit__(kind, error, trace)

    def _reset(self) -> None:
        if self._outer is not None:
            CALLING.reset(self._outer)
            self._outer = None

    def _on_loop(self, job: "JobContext", work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the worker's loop, from the thread of a plain function."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(work, job.loop).result()
        work.close()
        raise TypeError(
            f"a permit of {self._spec.name!r} was taken with `with` in async code; write `async with`"
        )
