"""Providers: outside services as an application declares them, and as an operator inspects and overrides them."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast.core.errors import ConfigError, StateRefused
from holdfast.core.providers.breaker_state import (
    failure_rate,
    failures,
    lets_through,
    overridden,
    state_name,
    with_probe,
)
from holdfast.core.providers.override import Override, OverrideKind
from holdfast.core.providers.permission import live_trials
from holdfast.core.providers.provider import ProviderSpec, checked_key
from holdfast.core.providers.provider_state import ProviderState
from holdfast.core.strict_json import ensure_storable
from holdfast.engine.execution.context import CALLING, CURRENT
from holdfast.engine.execution.job_context import JobContext
from holdfast.engine.execution.provider_calls import ProviderCall
from holdfast.engine.providers.shared_state import Announcement
from holdfast.face.sync import Portal, in_sync

if TYPE_CHECKING:
    import builtins
    from contextlib import AbstractAsyncContextManager
    from contextvars import Token
    from types import TracebackType

    from holdfast.core.providers.holder import Holder
    from holdfast.face.holdfast import Holdfast
    from holdfast.ports.providers import ProviderEvent

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
            f"a permit of {self._spec.name!r} guards a block, and not a function; use @hold.stage(provider=…)"
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
                f"a permit of {self._spec.name!r} is for one call; ask for one each time, with `.permit()`"
            )
        self._used = True

    async def _entered(self, job: JobContext) -> ProviderCall:
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

    def _on_loop(self, job: JobContext, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the worker's loop, from the thread of a plain function."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(work, job.loop).result()
        work.close()
        raise TypeError(
            f"a permit of {self._spec.name!r} was taken with `with` in async code; write `async with`"
        )


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """The state of a provider, for all workers of the store.

    `state` is one of `closed`, `recovering`, `open`, `half-open`, `limited`, `blocked`, or an operator's override:
    `forced open`, `forced closed`, `observed`, `paused`. `until` is when trials begin.
    """

    name: str
    declared: bool
    state: str
    held: int
    failure_rate: float
    failed: int
    calls: int
    """How many calls there are of which `failed` failed: in the window, or when the breaker opened."""
    trials: int
    """Trials in flight."""
    since: datetime | None = None
    until: datetime | None = None
    actor: str | None = None
    reason: str | None = None
    backup: str | None = None


class Providers:
    """Inspects providers and overrides their breakers, for operators. Reached as `hold.providers`."""

    def __init__(self, hold: "Holdfast") -> None:
        self._hold = hold

    @property
    def _portal(self) -> Portal:
        return self._hold._portal

    def _on(self, hold: "Holdfast") -> "Providers":
        return hold.providers

    async def list(self) -> "builtins.list[ProviderStatus]":
        """Return the status of every provider that is declared here, or known to the store."""
        return await self._hold._provider_statuses(None)

    async def show(self, name: str) -> ProviderStatus:
        """Return the status of one provider. Raises `ConfigError` if there is none of that name."""
        [status] = await self._hold._provider_statuses(name)
        return status

    async def events(self, name: str, *, limit: int = 50) -> "builtins.list[ProviderEvent]":
        """Return the history of a provider, the newest event first."""
        return await self._hold._provider_events(name, limit)

    async def open(self, name: str, *, actor: str, reason: str = "") -> None:
        """Force the breaker open: no call is made until it is resumed, and a backup takes over."""
        await self._override(name, OverrideKind.OPEN, actor, reason)

    async def close(self, name: str, *, actor: str, reason: str = "") -> None:
        """Force the breaker closed: every call is made until it is resumed."""
        await self._override(name, OverrideKind.CLOSED, actor, reason)

    async def observe(self, name: str, *, actor: str, reason: str = "") -> None:
        """Make every call until it is resumed, and only record what the breaker would do."""
        await self._override(name, OverrideKind.OBSERVE, actor, reason)

    async def pause(self, name: str, *, actor: str, reason: str = "") -> None:
        """Make no call, and use no backup either, until it is resumed: jobs wait."""
        await self._override(name, OverrideKind.PAUSE, actor, reason)

    async def _override(self, name: str, kind: OverrideKind, actor: str, reason: str) -> None:
        ensure_storable(actor=actor, reason=reason)

        def set_override(
            state: ProviderState, now: float
        ) -> tuple[ProviderState, None, Sequence[Announcement]]:
            override = Override(kind, actor, reason, now)
            after = replace(state, breaker=overridden(state.breaker, override, now))
            details = {"order": state_name(after.breaker, now), "actor": actor, "reason": reason}
            return after, None, [Announcement("ordered", details)]

        await self._hold._change_provider(name, set_override, actor=actor)

    async def resume(self, name: str, *, actor: str, reason: str = "") -> None:
        """Clear the override: the breaker decides again. Raises `StateRefused` if there is none."""
        ensure_storable(actor=actor, reason=reason)

        def clear_override(
            state: ProviderState, now: float
        ) -> tuple[ProviderState, None, Sequence[Announcement]]:
            if state.breaker.override is None:
                raise StateRefused(f"provider {name!r} has no override to clear")
            after = replace(state, breaker=overridden(state.breaker, None, now))
            return after, None, [Announcement("resumed", {"actor": actor, "reason": reason})]

        await self._hold._change_provider(name, clear_override, actor=actor)

    async def probe(self, name: str, *, actor: str, reason: str = "") -> None:
        """Let one job through as a trial, ahead of time. Raises `StateRefused` if calls are let through already."""
        ensure_storable(actor=actor, reason=reason)

        def ask(state: ProviderState, now: float) -> tuple[ProviderState, None, Sequence[Announcement]]:
            if lets_through(state.breaker):
                raise StateRefused(f"provider {name!r} lets calls through already; there is nothing to probe")
            after = replace(state, breaker=with_probe(state.breaker))
            return after, None, [Announcement("probe", {"actor": actor, "reason": reason})]

        await self._hold._change_provider(name, ask, actor=actor)

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
    show_sync = in_sync(show)
    events_sync = in_sync(events)
    open_sync = in_sync(open)  # noqa: A003 - the method above is meant
    close_sync = in_sync(close)
    observe_sync = in_sync(observe)
    pause_sync = in_sync(pause)
    resume_sync = in_sync(resume)
    probe_sync = in_sync(probe)


def statuses(
    names: Sequence[str],
    states: "dict[str, ProviderState]",
    held: "dict[Holder, int]",
    declared: "dict[str, ProviderSpec]",
    now: float,
) -> "builtins.list[ProviderStatus]":
    """Return the status of these providers."""
    return [
        _status(name, states.get(name, ProviderState()), _held(name, held), declared.get(name), now)
        for name in names
    ]


def _held(name: str, held: "dict[Holder, int]") -> int:
    return sum(count for holder, count in held.items() if holder.provider == name)


def _status(
    name: str, state: ProviderState, held: int, spec: ProviderSpec | None, now: float
) -> ProviderStatus:
    breaker = state.breaker
    since = (
        breaker.override.at
        if breaker.override is not None
        else breaker.open_period.since
        if breaker.open_period is not None
        else None
    )
    until = (
        breaker.open_period.until if breaker.open_period is not None and breaker.override is None else None
    )
    failed, calls = failures(breaker)
    return ProviderStatus(
        name=name,
        declared=spec is not None,
        state=state_name(breaker, now),
        held=held,
        failure_rate=failure_rate(breaker),
        failed=failed,
        calls=calls,
        trials=len(live_trials(breaker, now)),
        since=_instant(since),
        until=_instant(until),
        actor=None if breaker.override is None else breaker.override.actor,
        reason=None if breaker.override is None else breaker.override.reason,
        backup=None if spec is None else spec.backup,
    )


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def unknown_provider(name: str, known: Sequence[str], *, declared: bool) -> ConfigError:
    """Return the error for an unknown provider; *declared* says whether *known* includes those declared here."""
    there = ", ".join(sorted(known)) or "none"
    hint = "" if declared else "; one that was never called is known only where it is declared (--app)"
    return ConfigError(f"there is no provider {name!r}; known are: {there}{hint}")
