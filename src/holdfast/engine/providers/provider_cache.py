"""The provider cache: the shared state of a provider as this worker last read it."""

import asyncio
from typing import NamedTuple

from holdfast.core.providers.permission import CallPermission, call_permission
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.providers.provider_state import ProviderState
from holdfast.engine.providers.shared_state import SharedState

REPORT_EVERY = 0.05
"""Seconds for which outcomes are collected at most, and for which the state that was read counts as fresh."""


class CallToken(NamedTuple):
    """Permission for one call: the generation of the breaker that gave it, and the trial's slot."""

    generation: int
    trial: str | None = None


class ProviderCache:
    """What one worker knows of the row that all workers share, and how old that is."""

    def __init__(self, spec: ProviderSpec) -> None:
        self._spec = spec
        self._loop = asyncio.get_running_loop()
        self._version = -1
        self._ahead = 0.0
        self.state = ProviderState()
        self.known_at: float | None = None
        """When the state was valid, on the loop's clock; `None` before the first read."""
        self.free_token: CallToken | None = None
        """The token of every call while the breaker is closed and there are no limits."""

    @property
    def now(self) -> float:
        """The store's time, as far as this process knows it."""
        return self._loop.time() + self._ahead

    @property
    def takes_calls(self) -> bool:
        """Whether the breaker lets new calls through, be it as trials, as far as this process knows."""
        return call_permission(self.state.breaker, self._spec.breaker, self.now) is not CallPermission.NONE

    def is_fresh(self, asked_at: float) -> bool:
        """Whether the state is fresh for a caller that asked at *asked_at*."""
        return self.known_at is not None and self.known_at >= asked_at - REPORT_EVERY

    def update(self, read: SharedState) -> bool:
        """Take over a state that was read, unless a newer one is known; return whether it was taken over.

        A lower version that was requested later is newer, too: the database was restored from a backup.
        """
        if read.version < self._version and read.asked_at < (self.known_at or 0.0):
            return False
        answered_at = self._loop.time()
        self.state, self._version = read.state, read.version
        # A slow read is as old as it took, less one report: otherwise a busy loop would never have a fresh state.
        self.known_at = max(read.asked_at, answered_at - REPORT_EVERY)
        self._ahead = read.now - (read.asked_at + answered_at) / 2
        breaker = read.state.breaker
        always_allowed = not self._spec.limited and breaker.is_closed
        self.free_token = CallToken(breaker.generation) if always_allowed else None
        return True
