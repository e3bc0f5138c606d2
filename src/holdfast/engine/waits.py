"""Waiting inside a job: for a time, for a signal, or for other jobs, without a slot and over restarts.

A wait is a stage whose result comes from outside. While there is none, the job's function is unwound
and the job parked; woken, it runs again from its beginning, finds the results of its stages and of its
earlier waits, and goes on where it stood. So whatever the function was told, it is told again: what could
come out differently the next time is stored before it is told.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from holdfast.core.errors import ConfigError, JobNotFound, ResultTimeout, SignalTimeout, StateRefused
from holdfast.core.failures import ErrorClass, Failure
from holdfast.core.jobs import End, Job, Signal, known_id
from holdfast.core.stages import StageKey, StageRow, StageStatus
from holdfast.core.states import Status
from holdfast.core.transitions import FOR_EVER, StageWrite, park
from holdfast.engine.unwinding import Interrupted, LeaseLost

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt, Tools
    from holdfast.engine.stages import Stages

T = TypeVar("T")

TIMED_OUT = '{"timed_out":true}'


class _Wait(NamedTuple):
    """Something that has not come yet, and until when it may: in seconds since the job was claimed."""

    what: str
    until: float
    job_id: str | None = None


class Waits:
    """What a job waits for while one attempt runs."""

    def __init__(
        self, attempt: "Attempt", stages: "Stages", tools: "Tools", signals: Sequence[Signal]
    ) -> None:
        self._attempt = attempt
        self._stages = stages
        self._store = tools.store
        self._patience = tools.patience
        self._calls: Counter[str] = Counter()
        self._seen = max((signal.number for signal in signals), default=0)
        taken = {_told(row).get("number") for row in stages.stored.values() if _is_of_signal(row)}
        self._unheard = [signal for signal in signals if signal.number not in taken]
        self._asked: set[str] = set()
        self._asking: asyncio.Task[dict[str, End]] | None = None
        self._ends: dict[str, End] = {}
        self._unwritten: dict[StageKey, End] = {}
        """Ends that the job was told of, and could be told of again by those jobs' own rows: they stay for a while."""
        self._open: list[_Wait] = []
        self._parking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def sleep(self, length: timedelta) -> None:
        """Return once *length* has passed since the job first came here."""
        place = self._place(f"@sleep {length}")
        row = await self._begun(place)
        if row.status is StageStatus.DONE:
            return
        if self._lasts(until := _until(row, length)):
            await self._park(_Wait(f"sleeps for {length}", until))
        await self._end(place, StageStatus.DONE, result="null")

    async def signal(self, name: str, timeout: timedelta | None) -> Any:
        """Give what came with the next signal of that name. Raises `SignalTimeout`."""
        place = self._place(f"@signal {name}")
        row = self._stages.stored.get(place)
        if row is None or row.status is StageStatus.STARTED:
            row = await self._heard(place, name, timeout)
        if row.failure is not None:
            raise SignalTimeout(row.failure.message)
        return _told(row)["data"]

    async def _heard(self, place: StageKey, name: str, timeout: timedelta | None) -> StageRow:
        """Take the first signal that nobody took; without one, park until the time is over."""
        signal = next((signal for signal in self._unheard if signal.name == name), None)
        if signal is not None:
            self._unheard.remove(signal)  # at once: a wait beside this one shall not take the same
            told = f'{{"number":{signal.number},"data":{signal.data}}}'
            return await self._end(place, StageStatus.DONE, result=told)
        if self._lasts(until := _until(await self._begun(place), timeout)):
            await self._park(_Wait(f"waits for the signal {name!r}", until))
        return await self._ran_out(place, f"no signal {name!r} came within {timeout}")

    async def end_of(self, job_id: str, timeout: timedelta | None) -> End:
        """Tell how another job ended. Raises `ResultTimeout`, `JobNotFound`."""
        wanted = known_id(job_id)
        if wanted == self._attempt.claim.id:
            raise ConfigError(f"job {wanted} waits for its own end, which cannot come; wait for another job")
        place = self._place(f"@job {wanted}")
        row = self._stages.stored.get(place)
        if row is None or row.status is StageStatus.STARTED:
            row = await self._learnt(place, wanted, timeout)
        if row is None:
            return await self._known(wanted)
        if row.status is StageStatus.DONE:
            # Workers of an earlier version have written down no more than that it was heard.
            return await self._known(wanted) if row.result is None else _end_of(wanted, row)
        if row.result == TIMED_OUT and row.failure is not None:
            raise ResultTimeout(row.failure.message, failure=row.failure)
        return End(wanted, "", Status.FAILED, None, row.failure)

    async def _learnt(self, place: StageKey, job_id: str, timeout: timedelta | None) -> StageRow | None:
        """Find out how a job ended, and write down what another look could deny; as long as it has not, park.

        A later look may find that the job has ended after all, or that a retry has undone its failure.
        """
        until = FOR_EVER.total_seconds() if timeout is None else _until(await self._begun(place), timeout)
        end = await self._known(job_id)
        if end.status is Status.FAILED and self._attempt.has_child(job_id):
            end = await self._brought_back(end)
        if end.status is Status.FAILED:
            return await self._end(place, StageStatus.FAILED, failure=end.failure)
        if end.status.ended:
            self._unwritten[place] = end
            return None if timeout is None else await self._write_down(place)
        if self._lasts(until):
            await self._park(_Wait(f"waits for job {job_id}", until, job_id))
        return await self._ran_out(place, f"job {job_id} did not end within {timeout}; it goes on")

    async def _brought_back(self, end: End) -> End:
        """Bring a job back that an earlier generation has submitted, and that has failed: once in this one.

        Which generation of it has failed is written down first: whoever dies in between can tell whether it is done.
        """
        claim = self._attempt.claim
        place = StageKey(f"@again {end.id}", f"#{claim.generation}")
        with self._stages.bustle.under_way():
            child, own = [
                await self._patience.insist(partial(self._read, each)) for each in (end.id, claim.id)
            ]
            if child.created_at >= own.queued_at:
                return end  # it is of this very generation
            row = self._stages.stored.get(place)
            if row is None:
                row = await self._end(place, StageStatus.DONE, result=str(child.generation))
            if row.result == str(child.generation):
                with suppress(StateRefused):  # somebody else was quicker
                    await self._patience.insist(
                        lambda _: self._store.retry(end.id, generation=child.generation)
                    )
        self._ends.pop(end.id, None)
        return await self._known(end.id)

    async def _read(self, job_id: str, _: int) -> Job:
        return await self._store.get(job_id)

    async def _write_down(self, place: StageKey) -> StageRow:
        """Keep with the job how another one ended, which may be deleted long before this one has."""
        end = self._unwritten.pop(place)
        told = {"name": end.name, "status": end.status, "result": end.result}
        return await self._end(place, StageStatus.DONE, result=json.dumps(told, ensure_ascii=False))

    async def _known(self, job_id: str) -> End:
        end = await self._ask(job_id)
        if end is None:
            raise JobNotFound(f"there is no job {job_id} to wait for: never submitted, or not committed")
        return end

    async def _ask(self, job_id: str) -> End | None:
        """Ask how a job ended, or whether it lives, together with all that are asked for at the same time."""
        if job_id in self._ends:
            return self._ends[job_id]
        self._asked.add(job_id)
        if self._asking is None:
            self._asking = self._task(self._answer(), "asks")
        with self._stages.bustle.under_way():
            # Whoever gives up does not take the answer from the others.
            return (await asyncio.shield(self._asking)).get(job_id)

    async def _answer(self) -> dict[str, End]:
        await asyncio.sleep(0)
        asked, self._asked, self._asking = sorted(self._asked), set(), None
        found = {end.id: end for end in await self._patience.insist(lambda _: self._store.ends(asked))}
        self._ends |= {job_id: end for job_id, end in found.items() if end.status.ended}
        return found

    def _place(self, name: str) -> StageKey:
        self._calls[name] += 1
        return StageKey(name, f"#{self._calls[name]}")

    async def _begun(self, place: StageKey) -> StageRow:
        """Give what is stored of a wait. Its first time is noted: every attempt counts from there."""
        return self._stages.stored.get(place) or await self._write(place, StageStatus.STARTED)

    async def _ran_out(self, place: StageKey, message: str) -> StageRow:
        """Note as failed that the time was over: every attempt is told the same, until somebody retries the job."""
        failure = Failure.of(ErrorClass.TIMEOUT, message)
        return await self._end(place, StageStatus.FAILED, result=TIMED_OUT, failure=failure)

    async def _end(
        self,
        place: StageKey,
        status: StageStatus,
        *,
        result: str | None = None,
        failure: Failure | None = None,
    ) -> StageRow:
        with self._stages.bustle.under_way():
            await self._stages.note_lone()
            return await self._write(place, status, result, failure)

    async def _write(
        self,
        place: StageKey,
        status: StageStatus,
        result: str | None = None,
        failure: Failure | None = None,
    ) -> StageRow:
        claim = self._attempt.claim
        with self._stages.bustle.under_way():
            await self._stages.write(StageWrite(claim.id, claim.token, place, status, 1, "", result, failure))
        # Ages are counted up to the claim, and this was stored after it.
        age = -self._attempt.elapsed()
        row = StageRow(claim.id, place, status, 1, "", result, failure, age)
        self._stages.stored[place] = row
        return row

    def _lasts(self, until: float) -> bool:
        return until > self._attempt.elapsed()

    async def _park(self, wait: _Wait) -> NoReturn:
        """Unwind the job's function; waits that come together park together."""
        self._open.append(wait)
        if self._parking is None:
            self._parking = self._task(self._unwind(), "parks")
        try:
            await asyncio.shield(self._parking)
        finally:
            self._open.remove(wait)  # whoever is cancelled meanwhile waits no longer
        raise Interrupted("the job waits")

    async def _unwind(self) -> None:
        """Decide on the job's rest, once nothing is under way and everybody who waits has said so."""
        try:
            while not await self._parked():
                continue
        finally:
            self._parking = None

    async def _parked(self) -> bool:
        """Park the job, unless something began meanwhile; then this is to be tried again."""
        await self._stages.bustle.quiet()
        waits = list(self._open)
        if not waits or self._stages.postponed is not None:
            return True  # nobody waits any more; or a stage is to be tried again, and that comes first
        # A rest may be a long one. An attempt that goes on at once can ask again, and spares the writing.
        await asyncio.gather(*map(self._write_down, list(self._unwritten)))
        others = [wait.job_id for wait in waits if wait.job_id is not None]
        if others:
            await self._register(others)
        if waits != self._open or not self._stages.bustle.idle or self._stages.postponed is not None:
            return False
        left = max(min(wait.until for wait in waits) - self._attempt.elapsed(), 0.0)
        self._stages.postponed = park(
            self._attempt.claim,
            waits[0].what + (f", and {len(waits) - 1} more" if len(waits) > 1 else ""),
            delay=timedelta(seconds=left),
            seen=self._seen,
            awaits=bool(others),
        )
        return True

    async def _register(self, others: list[str]) -> None:
        """Have the job woken when the others have ended. To say so again does no harm."""
        claim = self._attempt.claim
        if not await self._patience.insist(lambda _: self._store.await_jobs(claim.id, claim.token, others)):
            raise LeaseLost

    def _task(self, work: Coroutine[Any, Any, T], what: str) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name=f"job {self._attempt.claim.id} {what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Ask nothing more when the attempt is over."""
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=5)


def _until(row: StageRow, length: timedelta | None) -> float:
    """Tell when a wait is over, in seconds since the claim, up to which ages are counted."""
    return (FOR_EVER if length is None else length).total_seconds() - row.age


def _end_of(job_id: str, row: StageRow) -> End:
    told = _told(row)
    return End(job_id, told["name"], Status(told["status"]), told["result"], None)


def _is_of_signal(row: StageRow) -> bool:
    return row.key.name.startswith("@signal ")


def _told(row: StageRow) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(row.result or "{}")
    return told
