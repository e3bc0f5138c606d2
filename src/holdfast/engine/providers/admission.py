"""Admission of calls to a provider: its breaker and its limits give a permit, or refuse it, and the job is held."""

import asyncio
from typing import NamedTuple

from holdfast.core.errors import ConfigError
from holdfast.core.providers.breaker_state import BreakerState, calls_for_backup
from holdfast.core.providers.call_reports import CallOutcome
from holdfast.core.providers.holder import Holder
from holdfast.core.providers.permission import CallPermission, call_permission
from holdfast.core.providers.provider import ProviderSpec, hold_reason
from holdfast.engine.providers.provider_cache import CallToken
from holdfast.engine.providers.provider_link import LinkRuntime, ProviderLink
from holdfast.engine.registry import Registry

BAD_OUTCOMES = frozenset(
    {CallOutcome.FAILURE, CallOutcome.LIMITED, CallOutcome.DENIED, CallOutcome.EXHAUSTED}
)
"""Outcomes that count against the provider."""

_DECISIVE_OUTCOMES = frozenset({CallOutcome.LIMITED, CallOutcome.DENIED, CallOutcome.EXHAUSTED})
"""Outcomes of which one may open a breaker."""


class PermitRefusal(NamedTuple):
    """No call may be made now: the holder of the job, and the reason."""

    holder: Holder
    reason: str


class PermitRequest(NamedTuple):
    """What admission needs to know about a call."""

    key: str = ""
    retry: bool = False
    released_by: str | None = None
    """The provider that held the job and has released it."""
    tried: frozenset[str] = frozenset()
    """Providers that this attempt has already called for it."""


class Permit:
    """Permission to make one call. Its owner reports how the call ended, once."""

    __slots__ = ("_began", "_link", "_token", "request")

    def __init__(self, link: ProviderLink, token: CallToken, request: PermitRequest) -> None:
        self._link = link
        self._token = token
        self.request = request
        self._began = link.clock()

    @property
    def provider(self) -> ProviderSpec:
        """The provider to call: the requested one, or a backup."""
        return self._link.spec

    @property
    def is_trial(self) -> bool:
        """Whether the call is a trial."""
        return self._token.trial is not None

    @property
    def is_overdue(self) -> bool:
        """Whether the call has exceeded its timeout."""
        return self._seconds() > self.provider.timeout.total_seconds()

    def drop(self) -> None:
        """Report that the call was abandoned, which says nothing about the provider."""
        self._link.leave(self.request.key)
        self._link.report(self._token, CallOutcome.IGNORED, self._seconds())

    async def ended(self, outcome: CallOutcome, *, wait: float | None = None) -> bool:
        """Report how the call ended; false if the breaker had already opened, for a cause that covers this call too."""
        self._link.leave(self.request.key)
        if self.is_trial or outcome in _DECISIVE_OUTCOMES:
            return await self._link.report_decisive(self._token, outcome, self._seconds(), wait=wait)
        self._link.report(self._token, outcome, self._seconds())
        return True

    def refusal(self) -> PermitRefusal:
        """Return why the job is held whose call showed that the provider is not back."""
        return _breaker_refusal(self._link, self._link.state.breaker)

    def _seconds(self) -> float:
        return self._link.clock() - self._began


class Admission:
    """Admits calls to the providers that a process has declared. Each worker has one."""

    def __init__(self, registry: Registry, runtime: LinkRuntime) -> None:
        self._registry = registry
        self._runtime = runtime
        self._links: dict[str, ProviderLink] = {}

    @property
    def links(self) -> list[ProviderLink]:
        """The links to the declared providers."""
        return [self.link(spec) for spec in self._registry.providers.values()]

    def link(self, spec: ProviderSpec) -> ProviderLink:
        """Return the link to a provider. Raises `ConfigError` for one that another Holdfast declared."""
        link = self._links.get(spec.name)
        if link is not None and link.spec is spec:
            return link  # nearly always
        if self._registry.providers.get(spec.name) is not spec:
            raise ConfigError(
                f"provider {spec.name!r} was not declared here, so its limits are not kept; "
                "call hold.provider() of the Holdfast that runs the job"
            )
        link = self._links[spec.name] = ProviderLink(spec, self._runtime)
        return link

    def link_named(self, name: str) -> ProviderLink:
        """Return the link to a provider that may be declared elsewhere, or no longer."""
        spec = self._registry.providers.get(name)
        if spec is not None:
            return self.link(spec)
        link = self._links.get(name)
        if link is None:
            link = self._links[name] = ProviderLink(ProviderSpec(name), self._runtime)
        return link

    async def acquire(self, spec: ProviderSpec, request: PermitRequest) -> Permit | PermitRefusal:
        """Return a permit to call a provider, or its backup while the breaker is open."""
        link = self.link(spec)
        token = link.try_acquire()
        if token is not None:  # nearly every call
            return Permit(link, token, request)
        answer = await self._acquire_from(link, request)
        if (
            isinstance(answer, Permit)
            or answer.holder != Holder(spec.name)
            or not calls_for_backup(link.state.breaker)
        ):
            return answer
        return await self.acquire_backup(spec, request) or answer

    async def acquire_backup(
        self, spec: ProviderSpec, request: PermitRequest
    ) -> Permit | PermitRefusal | None:
        """Return a permit for the first backup, or backup of a backup, that lets the call through.

        If none does, return the refusal of a limit, which the job then waits for; `None` if there is no such refusal.
        """
        request = request._replace(retry=False, tried=request.tried | {spec.name})
        refusal: PermitRefusal | None = None
        for backup in self._registry.backups_of(spec.name):
            if backup.name in request.tried:
                continue
            answer = await self._acquire_from(self.link(backup), request)
            if isinstance(answer, Permit):
                self._runtime.metrics.count("provider_backups", provider=spec.name)
                self._runtime.logger.info("backup used", provider=spec.name, backup=backup.name)
                return answer
            if answer.holder != Holder(backup.name):
                refusal = answer
        return refusal

    async def _acquire_from(self, link: ProviderLink, request: PermitRequest) -> Permit | PermitRefusal:
        released = request.released_by == link.name
        breaker, checked_at = await link.breaker_state(), link.clock()
        if call_permission(breaker, link.spec.breaker, link.now, released=released) is CallPermission.NONE:
            return _breaker_refusal(link, breaker)
        if request.retry and not await link.limits.may_retry():
            return PermitRefusal(
                Holder(link.name, for_retries=True), f"the retry budget of {link.name} is spent"
            )
        if not await link.enter(request.key, released=released, retry=request.retry):
            return PermitRefusal(Holder(link.name, request.key), f"the limit of {link.name} is reached")
        try:
            token = await link.acquire(released=released, checked_at=checked_at)
        except BaseException:
            link.leave(request.key)
            raise
        if token is None:
            link.leave(request.key)
            return _breaker_refusal(link, link.state.breaker)
        return Permit(link, token, request)

    async def close(self) -> None:
        """Report what is left, and return the shares."""
        await asyncio.gather(*(link.close() for link in self._links.values()))


def _breaker_refusal(link: ProviderLink, breaker: BreakerState) -> PermitRefusal:
    return PermitRefusal(Holder(link.name), hold_reason(link.name, breaker, link.now))
