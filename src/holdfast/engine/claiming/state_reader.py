"""The stored state of claimed jobs, read before they run: results of their stages, and signals.

The state of one job may be too large to read in time, or not readable at all. That must not keep the jobs claimed with
it from running, nor let the job be claimed again at once.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from holdfast.core.jobs.job import Claim, Signal
from holdfast.core.jobs.stages import StageKey, StageRow
from holdfast.engine.runtime import Runtime

FIRST_DELAY = timedelta(seconds=1)
LONGEST_DELAY = timedelta(minutes=5)
REMEMBERED = 10_000
"""Most jobs to remember that could not be read: some are never claimed again."""


class StoredState(NamedTuple):
    """The stored state of one job."""

    stages: dict[StageKey, StageRow]
    signals: list[Signal]


class StateReader:
    """Reads the state of jobs together, and if that fails, of each alone; each read takes *within* at most."""

    def __init__(self, worker: str, runtime: Runtime, *, within: timedelta) -> None:
        self._worker = worker
        self._store = runtime.store
        self._store_retry = runtime.store_retry
        self._clock = runtime.clock
        self._logger = runtime.logger
        self._describe = runtime.describe
        self._within = within
        self._failing: dict[str, float] = {}
        """The jobs that could not be read, and since when."""

    async def read(self, claims: Sequence[Claim]) -> dict[str, StoredState]:
        """Return the state of *claims* by job id; a job whose state cannot be read is left out."""
        found, why = await self._read_at_once(claims)
        if why and len(claims) > 1:
            for one, why_not in await asyncio.gather(*(self._read_at_once([claim]) for claim in claims)):
                found, why = found | one, why_not or why
        left_out = [claim.id for claim in claims if claim.id not in found]
        if left_out:
            self._logger.warning("claims released", worker=self._worker, jobs=len(left_out), message=why)
        if left_out or self._failing:
            self._remember(left_out, found)
        return found

    def delay(self, job_id: str) -> timedelta:
        """Return the delay before a job that could not be read is claimed again.

        It grows with the time for which this has been so: each release costs two history events.
        """
        now = self._clock.monotonic()
        so_far = timedelta(seconds=now - self._failing.get(job_id, now))
        return min(max(so_far, FIRST_DELAY), LONGEST_DELAY)

    def _remember(self, left_out: Iterable[str], found: Iterable[str]) -> None:
        for job_id in found:
            self._failing.pop(job_id, None)
        if len(self._failing) > REMEMBERED:
            self._failing.clear()
        now = self._clock.monotonic()
        for job_id in left_out:
            self._failing.setdefault(job_id, now)

    async def _read_at_once(self, claims: Sequence[Claim]) -> tuple[dict[str, StoredState], str]:
        """Read the state of *claims*; if that fails, return nothing, and the reason."""
        found = {claim.id: StoredState({}, []) for claim in claims}
        with_stages = [claim.id for claim in claims if claim.stages]
        with_signals = [claim.id for claim in claims if claim.signals]
        call = partial(self._store_retry.call, within=self._within)
        try:
            async with asyncio.timeout(self._within.total_seconds()):
                if with_stages:
                    for row in await call(lambda _: self._store.stages(with_stages)):
                        found[row.job_id].stages[row.key] = row
                if with_signals:
                    for signal in await call(lambda _: self._store.signals(with_signals)):
                        found[signal.job_id].signals.append(signal)
        except TimeoutError:
            return {}, f"no answer within {self._within.total_seconds():g} s"
        except Exception as error:  # noqa: BLE001 - the edge of a loop: the rows of one job do not end the worker
            return {}, self._describe(error)
        return found, ""
