"""Waiting inside a job: for a time, for a signal, or for other jobs, without a slot and over restarts.

A wait is a stage whose result comes from outside. While there is none, the job's function is unwound and the job is
parked. When it is woken, the function runs again from the top, gets the stored results of its stages and earlier waits,
and continues after them. So every run must see the same results: one that could differ the next time is stored before
the function gets it.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from holdfast.core.errors import ConfigError, JobNotFound, ResultTimeout, SignalTimeout, StateRefused
from holdfast.core.failures.failure import ErrorClass, Failure
from holdfast.core.jobs.job import End, Job, known_id
from holdfast.core.jobs.stages import StageKey, StageRow, StageStatus
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import FOR_EVER, StageWrite, park
from holdfast.engine.execution.execution_state import ExecutionState
from holdfast.engine.execution.interrupts import Interrupted, LeaseLost
from holdfast.engine.execution.stage_writer import StageWriter
from holdfast.engine.store_retry import StoreRetry
from holdfast.ports import Store

T = TypeVar("T")

TIMED_OUT = '{"timed_out":true}'


class _Wait(NamedTuple):
    """A wait that is not over, and when it times out, in seconds since the job was claimed."""

    what: str
    until: float
    job_id: str | None = None


class Suspension:
    """The waits of a job during one attempt: it returns their results, or parks the job."""

    def __init__(
        self, state: ExecutionState, writer: StageWriter, store: Store, store_retry: StoreRetry
    ) -> None:
        self._state = state
        self._writer = writer
        self._store = store
        self._store_retry = store_retry
        self._calls: Counter[str] = Counter()
        self._seen = max((signal.number for signal in state.signals), default=0)
        taken = {
            _stored_value(row).get("number")
            for row in state.rows.values()
            if row.key.name.startswith("@signal ")
        }
        self._untaken_signals = [signal for signal in state.signals if signal.number not in taken]
        self._requested: set[str] = set()
        self._reading: asyncio.Task[dict[str, End]] | None = None
        self._ends: dict[str, End] = {}
        self._unwritten: dict[StageKey, End] = {}
        """Ends that the function got and that are not stored: the rows of those jobs can still be read again."""
        self._waits: list[_Wait] = []
        self._parking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def sleep(self, duration: timedelta) -> None:
        """Return once *duration* has passed since the job first reached this call."""
        key = self._next_key(f"@sleep {duration}")
        row = await self._start_wait(key)
        if row.status is StageStatus.DONE:
            return
        if self._still_waits(until := _until(row, duration)):
            await self._park(_Wait(f"sleeps for {duration}", until))
        await self._end(key, StageStatus.DONE, result="null")

    async def signal(self, name: str, timeout: timedelta | None) -> Any:
        """Return the data of the next signal of that name. Raises `SignalTimeout`."""
        key = self._next_key(f"@signal {name}")
        row = self._state.rows.get(key)
        if row is None or row.status is StageStatus.STARTED:
            row = await self._take_signal(key, name, timeout)
        if row.failure is not None:
            raise SignalTimeout(row.failure.message)
        return _stored_value(row)["data"]

    async def _take_signal(self, key: StageKey, name: str, timeout: timedelta | None) -> StageRow:
        """Take the first signal that no wait has taken; without one, park until the timeout."""
        signal = next((signal for signal in self._untaken_signals if signal.name == name), None)
        if signal is not None:
            self._untaken_signals.remove(signal)  # at once: a concurrent wait must not take the same
            stored = f'{{"number":{signal.number},"data":{signal.data}}}'
            return await self._end(key, StageStatus.DONE, result=stored)
        if self._still_waits(until := _until(await self._start_wait(key), timeout)):
            await self._park(_Wait(f"waits for the signal {name!r}", until))
        return await self._time_out(key, f"no signal {name!r} came within {timeout}")

    async def end_of(self, job_id: str, timeout: timedelta | None) -> End:
        """Return how another job ended. Raises `ResultTimeout`, `JobNotFound`."""
        awaited_id = known_id(job_id)
        if awaited_id == self._state.claim.id:
            raise ConfigError(
                f"job {awaited_id} waits for its own end, which cannot come; wait for another job"
            )
        key = self._next_key(f"@job {awaited_id}")
        row = self._state.rows.get(key)
        if row is None or row.status is StageStatus.STARTED:
            row = await self._await_end(key, awaited_id, timeout)
        if row is None:
            return await self._require_end(awaited_id)
        if row.status is StageStatus.DONE:
            if row.result is None:  # a worker of an earlier version has stored only that the job has ended
                return await self._require_end(awaited_id)
            stored = _stored_value(row)
            return End(awaited_id, stored["name"], Status(stored["status"]), stored["result"], None)
        if row.result == TIMED_OUT and row.failure is not None:
            raise ResultTimeout(row.failure.message, failure=row.failure)
        return End(awaited_id, "", Status.FAILED, None, row.failure)

    async def _await_end(self, key: StageKey, job_id: str, timeout: timedelta | None) -> StageRow | None:
        """Read how a job ended, and store what a later read could contradict; park while it has not ended.

        A later read may find that the job has ended after all, or that a retry has undone its failure.
        """
        until = FOR_EVER.total_seconds() if timeout is None else _until(await self._start_wait(key), timeout)
        end = await self._require_end(job_id)
        if end.status is Status.FAILED and job_id in self._state.reused_children:
            end = await self._retry_child(end)
        if end.status is Status.FAILED:
            return await self._end(key, StageStatus.FAILED, failure=end.failure)
        if end.status.ended:
            self._unwritten[key] = end
            return None if timeout is None else await self._store_end(key)
        if self._still_waits(until):
            await self._park(_Wait(f"waits for job {job_id}", until, job_id))
        return await self._time_out(key, f"job {job_id} did not end within {timeout}; it goes on")

    async def _retry_child(self, end: End) -> End:
        """Retry a failed job that an earlier generation has submitted, once in this generation.

        The generation of it that failed is stored first: after a crash in between, the next run knows whether it was
        retried.
        """
        claim = self._state.claim
        key = StageKey(f"@again {end.id}", f"#{claim.generation}")
        with self._state.in_flight.track():
            child, own = [
                await self._store_retry.call(partial(self._read, each)) for each in (end.id, claim.id)
            ]
            if child.created_at >= own.queued_at:
                return end  # it was submitted by this generation
            row = self._state.rows.get(key)
            if row is None:
                row = await self._end(key, StageStatus.DONE, result=str(child.generation))
            if row.result == str(child.generation):
                with suppress(StateRefused):  # it was retried meanwhile
                    await self._store_retry.call(
                        lambda _: self._store.retry(end.id, generation=child.generation)
                    )
        self._ends.pop(end.id, None)
        return await self._require_end(end.id)

    async def _read(self, job_id: str, _: int) -> Job:
        return await self._store.get(job_id)

    async def _store_end(self, key: StageKey) -> StageRow:
        """Store with this job how another one ended: that one may be deleted long before this one ends."""
        end = self._unwritten.pop(key)
        stored = {"name": end.name, "status": end.status, "result": end.result}
        return await self._end(key, StageStatus.DONE, result=json.dumps(stored, ensure_ascii=False))

    async def _require_end(self, job_id: str) -> End:
        end = await self._read_end(job_id)
        if end is None:
            raise JobNotFound(f"there is no job {job_id} to wait for: never submitted, or not committed")
        return end

    async def _read_end(self, job_id: str) -> End | None:
        """Read how a job ended, or that it has not, in one query with all that are requested at the same time."""
        if job_id in self._ends:
            return self._ends[job_id]
        self._requested.add(job_id)
        if self._reading is None:
            self._reading = self._task(self._read_ends(), "asks")
        with self._state.in_flight.track():
            # Shielded: a caller that is cancelled does not cancel the read of the others.
            return (await asyncio.shield(self._reading)).get(job_id)

    async def _read_ends(self) -> dict[str, End]:
        await asyncio.sleep(0)
        asked, self._requested, self._reading = sorted(self._requested), set(), None
        found = {end.id: end for end in await self._store_retry.call(lambda _: self._store.ends(asked))}
        self._ends |= {job_id: end for job_id, end in found.items() if end.status.ended}
        return found

    def _next_key(self, name: str) -> StageKey:
        self._calls[name] += 1
        return StageKey(name, f"#{self._calls[name]}")

    async def _start_wait(self, key: StageKey) -> StageRow:
        """Return the row of a wait, stored at its first call: every attempt counts its time from there."""
        return self._state.rows.get(key) or await self._write(key, StageStatus.STARTED)

    async def _time_out(self, key: StageKey, message: str) -> StageRow:
        """Store that the wait timed out: every attempt gets the same, until the job is retried."""
        failure = Failure.of(ErrorClass.TIMEOUT, message)
        return await self._end(key, StageStatus.FAILED, result=TIMED_OUT, failure=failure)

    async def _end(
        self,
        key: StageKey,
        status: StageStatus,
        *,
        result: str | None = None,
        failure: Failure | None = None,
    ) -> StageRow:
        with self._state.in_flight.track():
            await self._writer.store_lone()
            return await self._write(key, status, result, failure)

    async def _write(
        self,
        key: StageKey,
        status: StageStatus,
        result: str | None = None,
        failure: Failure | None = None,
    ) -> StageRow:
        claim = self._state.claim
        with self._state.in_flight.track():
            return await self._writer.store(
                StageWrite(claim.id, claim.token, key, status, 1, "", result, failure)
            )

    def _still_waits(self, until: float) -> bool:
        return until > self._state.elapsed()

    async def _park(self, wait: _Wait) -> NoReturn:
        """Park the job and unwind its function; concurrent waits park together."""
        self._waits.append(wait)
        if self._parking is None:
            self._parking = self._task(self._unwind(), "parks")
        try:
            await asyncio.shield(self._parking)
        finally:
            self._waits.remove(wait)  # a caller that is cancelled meanwhile waits no longer
        raise Interrupted("the job waits")

    async def _unwind(self) -> None:
        """Park the job, once nothing is in flight and all its concurrent waits are registered."""
        try:
            while not await self._parked():
                continue
        finally:
            self._parking = None

    async def _parked(self) -> bool:
        """Park the job; return false if work started meanwhile, and this is to be called again."""
        await self._state.in_flight.wait_until_idle()
        waits = list(self._waits)
        if not waits or self._state.postponed is not None:
            return True  # no wait is left; or a stage is to be retried, which comes first
        # The job may be parked for long. An attempt that continues at once can read the ends again without this write.
        await asyncio.gather(*map(self._store_end, list(self._unwritten)))
        others = [wait.job_id for wait in waits if wait.job_id is not None]
        if others:
            await self._register(others)
        if waits != self._waits or not self._state.in_flight.idle or self._state.postponed is not None:
            return False
        left = max(min(wait.until for wait in waits) - self._state.elapsed(), 0.0)
        more = f", and {len(waits) - 1} more" if len(waits) > 1 else ""
        self._state.postpone(
            park(
                self._state.claim,
                waits[0].what + more,
                delay=timedelta(seconds=left),
                seen=self._seen,
                awaits=bool(others),
            )
        )
        return True

    async def _register(self, others: list[str]) -> None:
        """Register the job to be woken when the others have ended. Idempotent."""
        claim = self._state.claim
        if not await self._store_retry.call(lambda _: self._store.await_jobs(claim.id, claim.token, others)):
            raise LeaseLost

    def _task(self, work: Coroutine[Any, Any, T], what: str) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name=f"job {self._state.claim.id} {what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel the tasks that are left when the attempt is over."""
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=5)


def _until(row: StageRow, duration: timedelta | None) -> float:
    """Return when a wait is over, in seconds since the claim, up to which ages are counted."""
    return (FOR_EVER if duration is None else duration).total_seconds() - row.age


def _stored_value(row: StageRow) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(row.result or "{}")
    return stored
