"""The provider service: the status of providers, and the overrides of their breakers by an operator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

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
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.providers.provider_state import ProviderState
from holdfast.core.strict_json import ensure_storable
from holdfast.engine.operations.store_access import OperatorService, in_sync
from holdfast.engine.providers.shared_state import HistoryEntry, Step, swap

if TYPE_CHECKING:
    import builtins

    from holdfast.ports.providers import ProviderEvent

Change = tuple[ProviderState, None, Sequence[HistoryEntry]]
"""The state of a provider after an operator's step, and the entries for its history."""


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


class ProviderService(OperatorService):
    """Inspects providers and overrides their breakers, for operators. Reached as `hold.providers`."""

    async def list(self) -> "builtins.list[ProviderStatus]":
        """Return the status of every provider that is declared here, or known to the store."""
        await self._access.open()
        # To workers of an earlier version, jobs that are held for their name are held for a provider with an empty name.
        names = {*self._runtime.registry.providers, *await self._store.providers.names()} - {""}
        return await self._statuses(sorted(names))

    async def show(self, name: str) -> ProviderStatus:
        """Return the status of one provider. Raises `ConfigError` if there is none of that name."""
        await self._access.open()
        await self._ensure_known(name)
        [status] = await self._statuses([name])
        return status

    async def events(self, name: str, *, limit: int = 50) -> "builtins.list[ProviderEvent]":
        """Return the history of a provider, the newest event first."""
        await self._access.open()
        await self._ensure_known(name)
        return await self._store.providers.events(name, limit=limit)

    async def held(self, name: str) -> dict[str, int]:
        """Return the number of jobs that are held for a provider, by what they are held for: its breaker or a limit."""
        await self._access.open()
        held = await self._store.providers.count_held()
        return dict(sorted((holder.label, jobs) for holder, jobs in held.items() if holder.provider == name))

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
        """Make no call, and use no backup either, until it is resumed: jobs are held."""
        await self._override(name, OverrideKind.PAUSE, actor, reason)

    async def resume(self, name: str, *, actor: str, reason: str = "") -> None:
        """Clear the override: the breaker decides again. Raises `StateRefused` if there is none."""

        def clear_override(state: ProviderState, now: float) -> Change:
            if state.breaker.override is None:
                raise StateRefused(f"provider {name!r} has no override to clear")
            after = replace(state, breaker=overridden(state.breaker, None, now))
            return after, None, [HistoryEntry("resumed", {"actor": actor, "reason": reason})]

        await self._change(name, clear_override, actor, reason)

    async def probe(self, name: str, *, actor: str, reason: str = "") -> None:
        """Let one job through as a trial, ahead of time. Raises `StateRefused` if calls are let through already."""

        def request_trial(state: ProviderState, _: float) -> Change:
            if lets_through(state.breaker):
                raise StateRefused(f"provider {name!r} lets calls through already; there is nothing to probe")
            after = replace(state, breaker=with_probe(state.breaker))
            return after, None, [HistoryEntry("probe", {"actor": actor, "reason": reason})]

        await self._change(name, request_trial, actor, reason)

    async def _override(self, name: str, kind: OverrideKind, actor: str, reason: str) -> None:
        def set_override(state: ProviderState, now: float) -> Change:
            override = Override(kind, actor, reason, now)
            after = replace(state, breaker=overridden(state.breaker, override, now))
            details = {"order": state_name(after.breaker, now), "actor": actor, "reason": reason}
            return after, None, [HistoryEntry("ordered", details)]

        await self._change(name, set_override, actor, reason)

    async def _change(self, name: str, step: Step[None], actor: str, reason: str) -> None:
        """Change the shared state of a provider; releasers of other workers see it within a poll."""
        ensure_storable(actor=actor, reason=reason)
        if not actor:
            raise ConfigError("actor must not be empty")
        await self._access.open_for_change()
        await self._ensure_known(name)
        done = await swap(self._store, name, step, random=self._runtime.random)
        for entry in done.history:
            self._runtime.logger.info(f"provider {entry.kind}", provider=name, **entry.meta)

    async def _ensure_known(self, name: str) -> None:
        declared = self._runtime.registry.providers
        known = {*declared, *await self._store.providers.names()}
        if name not in known:
            raise _unknown(name, known, has_declarations=bool(declared))

    async def _statuses(self, names: "builtins.list[str]") -> "builtins.list[ProviderStatus]":
        now, rows = await self._store.providers.read(names)
        held = await self._store.providers.count_held()
        return [
            _status(
                name,
                ProviderState() if name not in rows else ProviderState.load(rows[name].state),
                sum(jobs for holder, jobs in held.items() if holder.provider == name),
                self._runtime.registry.providers.get(name),
                now,
            )
            for name in names
        ]

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
    show_sync = in_sync(show)
    events_sync = in_sync(events)
    held_sync = in_sync(held)
    open_sync = in_sync(open)  # noqa: A003 - the method above is meant
    close_sync = in_sync(close)
    observe_sync = in_sync(observe)
    pause_sync = in_sync(pause)
    resume_sync = in_sync(resume)
    probe_sync = in_sync(probe)


def _status(
    name: str, state: ProviderState, held: int, spec: ProviderSpec | None, now: float
) -> ProviderStatus:
    breaker, override, period = state.breaker, state.breaker.override, state.breaker.open_period
    since = override.at if override is not None else period.since if period is not None else None
    until = period.until if period is not None and override is None else None
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
        actor=None if override is None else override.actor,
        reason=None if override is None else override.reason,
        backup=None if spec is None else spec.backup,
    )


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _unknown(name: str, known: set[str], *, has_declarations: bool) -> ConfigError:
    names = ", ".join(sorted(known)) or "none"
    hint = (
        "" if has_declarations else "; one that was never called is known only where it is declared (--app)"
    )
    return ConfigError(f"there is no provider {name!r}; known are: {names}{hint}")
