"""Providers: outside services as an application declares them, and as an operator sees and handles them."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast.core.breakers import (
    Command,
    Order,
    alive,
    failure_rate,
    failures,
    lets_through,
    ordered,
    probed,
    state_of,
)
from holdfast.core.errors import ConfigError, StateRefused
from holdfast.core.payload import ensure_storable
from holdfast.core.providers import ProviderSpec, ProviderState, checked_key, provider_of
from holdfast.engine.attempt import Attempt
from holdfast.engine.calls import Call
from holdfast.engine.context import CALLING, CURRENT
from holdfast.engine.exchanging import Told
from holdfast.face.sync import Portal, in_sync

if TYPE_CHECKING:
    import builtins
    from contextlib import AbstractAsyncContextManager
    from contextvars import Token
    from types import TracebackType

    from holdfast.face.holdfast import Holdfast
    from holdfast.ports.providers import ProviderEvent

T = TypeVar("T")


class Provider:
    """An outside service. Give it to `@hold.stage(provider=…)`, or take a permit for a single call."""

    def __init__(self, spec: ProviderSpec) -> None:
        self.spec = spec

    @property
    def name(self) -> str:
        """The name under which all workers share what they know of it."""
        return self.spec.name

    def permit(self, *, key: object = "") -> "PermitBlock":
        """Make a call in the block, if the provider is well and its limits allow it.

        If not, the job is held: its function ends here, and runs again when the call can be made. Use it as
        `async with`, or in a plain function as `with`. The block gets the name of the provider to call, which may be
        that of a backup. An error that leaves the block is told to the breaker. Outside a job, every call is made.
        """
        try:
            return PermitBlock(self.spec, checked_key(key))
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def __repr__(self) -> str:
        return f"<Provider {self.name!r}>"


class PermitBlock:
    """Leave to make a call, for as long as the block lasts."""

    def __init__(self, spec: ProviderSpec, key: str) -> None:
        self._spec = spec
        self._key = key
        self._calling: AbstractAsyncContextManager[Call] | None = None
        self._attempt: Attempt | None = None
        self._outer: Token[tuple[Call, ...]] | None = None
        self._used = False

    def __call__(self, *_: object) -> NoReturn:
        raise ConfigError(
            f"a permit of {self._spec.name!r} guards a block, and not a function; use @hold.stage(provider=…)"
        )

    async def __aenter__(self) -> str:
        self._use()
        attempt = CURRENT.get()
        if attempt is None:
            return self._spec.name
        call = await self._entered(attempt)
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
        self._attempt = CURRENT.get()
        if self._attempt is None:
            return self._spec.name
        call = self._on_loop(self._attempt, self._entered(self._attempt))
        self._outer = CALLING.set((*CALLING.get(), call))
        return call.called

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> bool | None:
        self._reset()
        if self._attempt is None or self._calling is None:
            return None
        return self._on_loop(self._attempt, self._left(self._calling, kind, error, trace))

    def _use(self) -> None:
        """Serve one call: several would find each other's leave."""
        if self._used:
            raise ConfigError(
                f"a permit of {self._spec.name!r} is for one call; ask for one each time, with `.permit()`"
            )
        self._used = True

    async def _entered(self, attempt: Attempt) -> Call:
        self._calling = attempt.calling(self._spec, self._key)
        return await self._calling.__aenter__()

    async def _left(
        self,
        calling: "AbstractAsyncContextManager[Call]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> bool | None:
        return await calling.__aexit__(kind, error, trace)

    def _reset(self) -> None:
        if self._outer is not None:
            CALLING.reset(self._outer)
            self._outer = None

    def _on_loop(self, attempt: Attempt, work: Coroutine[Any, Any, T]) -> T:
        """Have *work* done on the worker's loop, from the thread of a plain function."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(work, attempt.loop).result()
        work.close()
        raise TypeError(
            f"a permit of {self._spec.name!r} was taken with `with` in async code; write `async with`"
        )


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """How a provider stands, for all workers of the store.

    `state` is one word or two: `closed`, `recovering`, `open`, `half-open`, `limited`, `blocked`, or what an
    operator laid down: `forced open`, `forced closed`, `observed`, `paused`. `until` is when trials begin.
    """

    name: str
    declared: bool
    state: str
    held: int
    failure_rate: float
    failed: int
    calls: int
    """How many of how many calls `failed`: of those in the window, or of those that have shut it."""
    trials: int
    """Trials under way."""
    since: datetime | None = None
    until: datetime | None = None
    actor: str | None = None
    reason: str | None = None
    backup: str | None = None


class Providers:
    """What an operator sees of providers, and can lay down about them. Reached as `hold.providers`."""

    def __init__(self, hold: "Holdfast") -> None:
        self._hold = hold

    @property
    def _portal(self) -> Portal:
        return self._hold._portal

    def _on(self, hold: "Holdfast") -> "Providers":
        return hold.providers

    async def list(self) -> "builtins.list[ProviderStatus]":
        """Tell how every provider stands that is declared here, or known to the store."""
        return await self._hold._provider_statuses(None)

    async def show(self, name: str) -> ProviderStatus:
        """Tell how one provider stands. Raises `ConfigError` if there is none of that name."""
        [status] = await self._hold._provider_statuses(name)
        return status

    async def events(self, name: str, *, limit: int = 50) -> "builtins.list[ProviderEvent]":
        """Tell what happened to a provider, the newest first."""
        return await self._hold._provider_events(name, limit)

    async def open(self, name: str, *, actor: str, reason: str = "") -> None:
        """Have no call made, until it is resumed; a backup takes over."""
        await self._order(name, Command.OPEN, actor, reason)

    async def close(self, name: str, *, actor: str, reason: str = "") -> None:
        """Have every call made, whatever the breaker says, until it is resumed."""
        await self._order(name, Command.CLOSED, actor, reason)

    async def observe(self, name: str, *, actor: str, reason: str = "") -> None:
        """Have every call made, until it is resumed, and only tell what the breaker would do."""
        await self._order(name, Command.OBSERVE, actor, reason)

    async def pause(self, name: str, *, actor: str, reason: str = "") -> None:
        """Have no call made, and no backup used either, until it is resumed: jobs wait."""
        await self._order(name, Command.PAUSE, actor, reason)

    async def _order(self, name: str, command: Command, actor: str, reason: str) -> None:
        ensure_storable(actor=actor, reason=reason)

        def lay_down(state: ProviderState, now: float) -> tuple[ProviderState, None, Sequence[Told]]:
            order = Order(command, actor, reason, now)
            after = replace(state, gate=ordered(state.gate, order, now))
            news = {"order": state_of(after.gate, now), "actor": actor, "reason": reason}
            return after, None, [Told("ordered", news)]

        await self._hold._change_provider(name, lay_down, actor=actor)

    async def resume(self, name: str, *, actor: str, reason: str = "") -> None:
        """Lift what was laid down: the breaker decides again. Raises `StateRefused` if nothing was."""
        ensure_storable(actor=actor, reason=reason)

        def lift(state: ProviderState, now: float) -> tuple[ProviderState, None, Sequence[Told]]:
            if state.gate.order is None:
                raise StateRefused(
                    f"nothing was laid down about provider {name!r}, so there is nothing to lift"
                )
            after = replace(state, gate=ordered(state.gate, None, now))
            return after, None, [Told("resumed", {"actor": actor, "reason": reason})]

        await self._hold._change_provider(name, lift, actor=actor)

    async def probe(self, name: str, *, actor: str, reason: str = "") -> None:
        """Let one job through as a trial, ahead of time. Raises `StateRefused` if calls are let through anyway."""
        ensure_storable(actor=actor, reason=reason)

        def ask(state: ProviderState, now: float) -> tuple[ProviderState, None, Sequence[Told]]:
            if lets_through(state.gate):
                raise StateRefused(f"provider {name!r} lets calls through already; there is nothing to probe")
            after = replace(state, gate=probed(state.gate))
            return after, None, [Told("probe", {"actor": actor, "reason": reason})]

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
    held: "dict[str, int]",
    declared: "dict[str, ProviderSpec]",
    now: float,
) -> "builtins.list[ProviderStatus]":
    """Put together how these providers stand."""
    return [
        _status(name, states.get(name, ProviderState()), _held(name, held), declared.get(name), now)
        for name in names
    ]


def _held(name: str, held: "dict[str, int]") -> int:
    return sum(count for holder, count in held.items() if provider_of(holder) == name)


def _status(
    name: str, state: ProviderState, held: int, spec: ProviderSpec | None, now: float
) -> ProviderStatus:
    gate = state.gate
    since = gate.order.at if gate.order is not None else gate.shut.since if gate.shut is not None else None
    until = gate.shut.until if gate.shut is not None and gate.order is None else None
    failed, calls = failures(gate)
    return ProviderStatus(
        name=name,
        declared=spec is not None,
        state=state_of(gate, now),
        held=held,
        failure_rate=failure_rate(gate),
        failed=failed,
        calls=calls,
        trials=len(alive(gate, now)),
        since=_instant(since),
        until=_instant(until),
        actor=None if gate.order is None else gate.order.actor,
        reason=None if gate.order is None else gate.order.reason,
        backup=None if spec is None else spec.backup,
    )


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def unknown_provider(name: str, known: Sequence[str], *, declared: bool) -> ConfigError:
    """Say that there is no such provider, and which there are; those that are *declared* here are among them."""
    there = ", ".join(sorted(known)) or "none"
    hint = "" if declared else "; one that was never called is known only where it is declared (--app)"
    return ConfigError(f"there is no provider {name!r}; known are: {there}{hint}")
