"""Leave to call a provider: given by its gate and its limits, or refused, and then the job is held."""

import asyncio
from typing import NamedTuple

from holdfast.core.breakers import Gate, Outcome, Way, calls_for_backup, way
from holdfast.core.errors import ConfigError
from holdfast.core.providers import (
    ProviderSpec,
    held_for_limit,
    held_for_retries,
    waiting_for,
)
from holdfast.engine.lines import Exchange, Line, Ticket
from holdfast.engine.registry import Registry

BAD = frozenset({Outcome.FAILURE, Outcome.LIMITED, Outcome.DENIED, Outcome.EXHAUSTED})
"""Ends of a call that speak against its provider."""

_DECISIVE = frozenset({Outcome.LIMITED, Outcome.DENIED, Outcome.EXHAUSTED})
"""Ends that may shut a gate by themselves."""


class Refusal(NamedTuple):
    """No call may be made now: who holds the job, and why."""

    holder: str
    reason: str


class Asking(NamedTuple):
    """What matters about a call before it is made."""

    key: str = ""
    retry: bool = False
    released_by: str | None = None
    """The provider that held the job and has let it out."""
    tried: frozenset[str] = frozenset()
    """Providers that were called for it already, in this attempt."""


class Permit:
    """Leave to make one call. Whoever has it says how the call ended, once."""

    __slots__ = ("_began", "_line", "_ticket", "asking")

    def __init__(self, line: Line, ticket: Ticket, asking: Asking) -> None:
        self._line = line
        self._ticket = ticket
        self.asking = asking
        self._began = line.clock()

    @property
    def provider(self) -> ProviderSpec:
        """Who may be called: the one that was asked for, or its backup."""
        return self._line.spec

    @property
    def is_trial(self) -> bool:
        """Whether the call is to show that the provider is back."""
        return self._ticket.trial is not None

    @property
    def is_overdue(self) -> bool:
        """Whether the call has taken longer than it may."""
        return self._seconds() > self.provider.timeout.total_seconds()

    def drop(self) -> None:
        """Say that the call was given up: that tells nothing about the provider."""
        self._line.leave(self.asking.key)
        self._line.report(self._ticket, Outcome.IGNORED, self._seconds())

    async def ended(self, outcome: Outcome, *, wait: float | None = None) -> bool:
        """Say how the call ended; false if the gate had shut before, for a reason that goes for this call too."""
        self._line.leave(self.asking.key)
        if self.is_trial or outcome in _DECISIVE:
            return await self._line.judge(self._ticket, outcome, self._seconds(), wait=wait)
        self._line.report(self._ticket, outcome, self._seconds())
        return True

    def refused_again(self) -> Refusal:
        """Say why the job is held whose call showed that the provider is not back."""
        return _at_the_gate(self._line, self._line.state.gate)

    def _seconds(self) -> float:
        return self._line.clock() - self._began


class Permits:
    """Gives leave to call the providers that a process has declared. Each worker has one."""

    def __init__(self, registry: Registry, exchange: Exchange) -> None:
        self._registry = registry
        self._exchange = exchange
        self._lines: dict[str, Line] = {}

    @property
    def lines(self) -> list[Line]:
        """The providers that are declared, as this worker sees them."""
        return [self.line(spec) for spec in self._registry.providers.values()]

    def line(self, spec: ProviderSpec) -> Line:
        """Give what this worker knows of a provider. Raises `ConfigError` for one that another Holdfast declared."""
        line = self._lines.get(spec.name)
        if line is not None and line.spec is spec:
            return line  # nearly always
        if self._registry.providers.get(spec.name) is not spec:
            raise ConfigError(
                f"provider {spec.name!r} was not declared here, so its limits are not kept; "
                "call hold.provider() of the Holdfast that runs the job"
            )
        line = self._lines[spec.name] = Line(spec, self._exchange)
        return line

    def line_of(self, name: str) -> Line:
        """Give what this worker knows of a provider that may be declared elsewhere, or no longer."""
        spec = self._registry.providers.get(name)
        if spec is not None:
            return self.line(spec)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(ProviderSpec(name), self._exchange)
        return line

    async def ask(self, spec: ProviderSpec, asking: Asking) -> Permit | Refusal:
        """Give leave to call a provider, or its backup if it is shut for a while."""
        line = self.line(spec)
        ticket = line.free_ticket()
        if ticket is not None:  # nearly every call
            return Permit(line, ticket, asking)
        answer = await self._ask(line, asking)
        if isinstance(answer, Permit) or answer.holder != spec.name or not calls_for_backup(line.state.gate):
            return answer
        return await self.ask_backup(spec, asking) or answer

    async def ask_backup(self, spec: ProviderSpec, asking: Asking) -> Permit | Refusal | None:
        """Give leave to call the backup of a provider, or the backup's, whichever lets the call through.

        If none does, a refusal for a limit stands: that is what the job waits for.
        """
        asking = asking._replace(retry=False, tried=asking.tried | {spec.name})
        refusal: Refusal | None = None
        for backup in self._registry.backups_of(spec.name):
            if backup.name in asking.tried:
                continue
            answer = await self._ask(self.line(backup), asking)
            if isinstance(answer, Permit):
                self._exchange.metrics.count("provider_backups", provider=spec.name)
                self._exchange.journal.info("backup used", provider=spec.name, backup=backup.name)
                return answer
            if answer.holder != backup.name:
                refusal = answer
        return refusal

    async def _ask(self, line: Line, asking: Asking) -> Permit | Refusal:
        released = asking.released_by == line.name
        gate, checked_at = await line.gate(), line.clock()
        if way(gate, line.spec.breaker, line.now, released=released) is Way.NONE:
            return _at_the_gate(line, gate)
        if asking.retry and not await line.may_retry():
            return Refusal(held_for_retries(line.name), f"{line.name} has no retries to spare")
        if not await line.enter(asking.key, released=released, retry=asking.retry):
            return Refusal(held_for_limit(line.name, asking.key), f"the limit of {line.name} is reached")
        try:
            ticket = await line.ticket(released=released, checked_at=checked_at)
        except BaseException:
            line.leave(asking.key)
            raise
        if ticket is None:
            line.leave(asking.key)
            return _at_the_gate(line, line.state.gate)
        return Permit(line, ticket, asking)

    async def close(self) -> None:
        """Report what is left, and give shares back."""
        await asyncio.gather(*(line.close() for line in self._lines.values()))


def _at_the_gate(line: Line, gate: Gate) -> Refusal:
    return Refusal(line.name, waiting_for(line.name, gate, line.now))
