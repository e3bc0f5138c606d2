"""Jobs that may be what took their workers down: they run one at a time, with nobody beside them."""

from collections import deque
from datetime import timedelta

from holdfast.core.jobs import Claim
from holdfast.engine.attempt import Attempt, Interruption
from holdfast.engine.patience import Patience
from holdfast.engine.registry import Registry
from holdfast.ports import Clock, Store

SOLO_AFTER = 2
"""Leases lost in a row after which a job is run alone: if it kills its process, it kills nobody else.

One whose next crash would be its last runs alone even earlier.
"""


class Suspects:
    """Suspects that wait for their turn, and the one that has it."""

    def __init__(
        self, store: Store, registry: Registry, patience: Patience, *, clock: Clock, longest_wait: timedelta
    ) -> None:
        self._store = store
        self._registry = registry
        self._patience = patience
        self._clock = clock
        self._longest_wait = longest_wait.total_seconds()
        self._waiting: deque[Attempt] = deque()
        self._since = 0.0
        self._alone: Attempt | None = None
        self._in_doubt = False
        """Whether the attempt of one that waits may have been spent: the store did not answer when it was asked to."""

    def __bool__(self) -> bool:
        """Whether nothing else may be claimed."""
        return self._alone is not None or bool(self._waiting)

    def among(self, claims: list[Claim]) -> list[Claim]:
        """Pick the suspects out of *claims*."""
        return [claim for claim in claims if claim.losses and self._suspicious(claim)]

    def _suspicious(self, claim: Claim) -> bool:
        spec = self._registry.get(claim.name)
        if spec is None or claim.attempt > spec.crash_budget:
            return False  # such a claim runs no code of the job
        return claim.losses >= SOLO_AFTER or claim.attempt == spec.crash_budget

    async def hold_back(self, claims: list[Claim], *, within: timedelta) -> None:
        """Take the attempts of *claims* back while they wait: another suspect may crash the process first."""
        counts = [(claim.id, claim.token, claim.attempt - 1) for claim in claims]
        await self._patience.insist(lambda _: self._store.recount(counts), within=within)

    def add(self, attempt: Attempt) -> None:
        """Let *attempt* wait for its turn."""
        self._since = self._clock.monotonic()
        self._waiting.append(attempt)

    async def next(self, *, busy: bool, within: timedelta) -> Attempt | None:
        """Give the suspect whose turn it is, its attempt spent; `None` while others are *busy*.

        Nothing is claimed meanwhile, so long neighbours are waited for only for a while.
        """
        waited = self._clock.monotonic() - self._since
        if self._alone is not None or (busy and waited < self._longest_wait):
            return None
        attempt = self._waiting.popleft()
        count = (attempt.claim.id, attempt.claim.token, attempt.claim.attempt)
        try:
            [held] = await self._patience.insist(lambda _: self._store.recount([count]), within=within)
        except BaseException:
            self._waiting.appendleft(attempt)
            self._in_doubt = True
            raise
        self._in_doubt = False
        if not held:
            attempt.interrupt(Interruption.LOST)  # it then ends without running, and without a word
        self._since = self._clock.monotonic()
        self._alone = attempt
        return attempt

    def ended(self, attempt: Attempt) -> None:
        """Hear that an attempt is over."""
        if self._alone is attempt:
            self._alone = None

    def dismiss(self) -> list[Claim]:
        """Give up all that wait: they have not begun."""
        waiting = [attempt.claim for attempt in self._waiting]
        self._waiting.clear()
        return waiting

    async def make_sure_unspent(self, dismissed: list[Claim], *, within: timedelta) -> None:
        """Take back an attempt that may have been spent when the store did not answer."""
        if dismissed and self._in_doubt:
            await self.hold_back(dismissed, within=within)
