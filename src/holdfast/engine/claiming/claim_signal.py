"""The signal to claim again: when the claim loop of a worker need not wait for its next poll."""

import asyncio
from contextlib import suppress

from holdfast.engine.claiming.quarantine import Quarantine


class ClaimSignal:
    """Wakes the claim loop, and knows whether an attempt that ends is worth another claim."""

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine
        self._woken = asyncio.Event()
        self.more = True
        """Whether the last round of claims may have left ready jobs."""
        self._hints_arrive = False

    def wake(self) -> None:
        """Make the worker claim again now."""
        self._woken.set()

    def wake_for_slot(self) -> None:
        """Make it claim again if a free slot may find a job: one is left or quarantined, or no hint ever arrived."""
        if self.more or not self._hints_arrive or self._quarantine.waiting:
            self._woken.set()

    def hint_arrived(self) -> None:
        """Note that hints arrive: an attempt that ends need not look for jobs that were submitted meanwhile."""
        self._hints_arrive = True

    def begin_round(self) -> None:
        """Note that a round of claims begins; what happens from now on causes another."""
        self._woken.clear()
        self.more = True

    def end_round(self, *, more: bool) -> None:
        """Note whether the round may have left ready jobs."""
        self.more = more

    async def wait(self, pause: float) -> None:
        """Wait until woken, for at most *pause* seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()
