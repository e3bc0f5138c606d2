"""People: they submit, wait, cancel and retry, and remember the answers that they got."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast import JobFailed, JobFilter, Status
from holdfast.errors import (
    JobCancelled,
    JobNotFound,
    ResultTimeout,
    StateRefused,
    StoreUnavailable,
    VersionRefused,
)
from tests.simulation.jobs import SIDE
from tests.simulation.processes import Injected
from tests.simulation.provided_jobs import NAMES
from tests.simulation.timed_jobs import GO

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from holdfast import Holdfast, JobFunction
    from holdfast.app.job_handle import JobHandle
    from tests.simulation.jobs import Jobs

TAKE_TIME = ("brief", "dogged")


@dataclass
class Memory:
    """What was promised to people. It outlives their processes."""

    deadly: bool = False
    """Whether there are jobs in this world that take their worker down."""
    timed: bool = False
    """Whether jobs have deadlines."""
    waits: bool = False
    """Whether there are jobs that sleep, or wait for signals or for each other."""
    pauses: bool = False
    """Whether queues are paused and resumed."""
    provided: bool = False
    """Whether there are providers, which people override."""
    lettered: bool = False
    """Whether dead letters are looked after."""
    archives: bool = False
    """Whether they are archived, and deleted with their jobs."""
    settled: bool = False
    """Whether no override is set any more."""
    acknowledged: dict[str, str] = field(default_factory=dict)
    keys: dict[tuple[str, str, str], str] = field(default_factory=dict)
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    results: dict[str, Any] = field(default_factory=dict)
    signalled: dict[str, str] = field(default_factory=dict)
    """The job that each signal was sent to, by its word: no word is sent twice."""
    accepted: list[str] = field(default_factory=list)
    """The jobs whose late result was accepted, as the store acknowledged."""
    said: int = 0
    plans: list[str] = field(default_factory=list)
    """The tokens of plans that were returned to a caller."""
    submitted: int = 0
    highest: int = 0
    """The highest version that may have been stored, whether it was acknowledged or not."""
    confirmed: int = 0
    """The highest version that was acknowledged."""


class People:
    """One process of people, doing one thing after another by chance."""

    def __init__(
        self,
        hold: Holdfast,
        jobs: Jobs,
        memory: Memory,
        chance: random.Random,
        *,
        limit: int,
        lease: float,
        complain: Callable[[str], None],
    ) -> None:
        self._hold = hold
        self._jobs = jobs
        self._memory = memory
        self._chance = chance
        self._limit = limit
        self._lease = lease
        self._complain = complain

    async def live(self, stop: asyncio.Event) -> None:
        """Act until *stop* is set. A cancellation is meant for the call that it meets, and does not end this."""
        deeds: list[Callable[[], Awaitable[None]]] = [
            *[self._submit_something] * 6,
            *[self._submit_with_a_key] * 3,
            self._submit_a_version,
            self._submit_many,
            self._cancel,
            self._bring_back,
            self._wait,
            *[self._signal] * 2 * self._memory.waits,
            *[self._accept_what_is_late] * 3 * self._memory.timed,
            *[self._pause_or_resume] * self._memory.pauses,
            *[self._submit_a_crowd, self._submit_a_crowd, self._override_a_provider] * self._memory.provided,
        ]
        async with self._hold:
            while not stop.is_set():
                await asyncio.sleep(self._chance.expovariate(1.0))
                try:
                    await self._chance.choice(deeds)()
                except (StoreUnavailable, Injected):
                    continue  # nothing was promised
                except JobNotFound as error:
                    if not self._memory.archives:
                        self._complain(f"a job that was acknowledged is not found: {error}")
                except asyncio.CancelledError:
                    _go_on()

    async def submit_one_of_each(self) -> None:
        """Submit a job of every kind, and go."""
        async with self._hold:
            await self._hold.queues.resume(SIDE, actor="people")
            if self._memory.provided:
                await self._remove_overrides()
            for job in self._kinds():
                self._acknowledged(await job.submit(*self._arguments(job)))

    async def send_signals(self, job_ids: list[str]) -> None:
        """Give each of these jobs one more signal."""
        async with self._hold:
            for job_id in job_ids:
                await self._send_signal(job_id)

    def _any(self) -> tuple[JobFunction[..., Any], tuple[Any, ...]]:
        """Pick a job, and arguments for it."""
        job: Any = self._chance.choice([*self._kinds(), self._jobs.order, *[self._jobs.fan] * 2])
        return job, self._arguments(job)

    def _kinds(self) -> list[Any]:
        jobs = self._jobs
        kinds: list[Any] = [jobs.plain, jobs.order, jobs.fan, jobs.long, jobs.flaky, jobs.doomed, jobs.blocking, jobs.parent]  # fmt: skip
        kinds += [jobs.killer] * self._memory.deadly
        kinds += [jobs.timed.brief, *[jobs.timed.dogged] * 2] * self._memory.timed
        waiting: list[Any] = [jobs.timed.sleeper, jobs.timed.listener, jobs.timed.family, jobs.timed.braid]
        kinds += waiting * self._memory.waits
        kinds += [jobs.mailing] * 5 * self._memory.lettered
        kinds += [] if jobs.messages is None else [jobs.messages.letter] * 2
        return kinds if jobs.provided is None else [*kinds, *jobs.provided]

    def _arguments(self, job: Any) -> tuple[Any, ...]:
        number = self._memory.submitted = self._memory.submitted + 1
        match job.name:
            case "long" | "brief" | "dogged":
                return (number, self._chance.uniform(0.2, 2.5) * self._lease)
            case "sleeper":
                return (number, self._chance.uniform(1.0, 15.0))
            case "listener":
                return (number, self._chance.choice((None, 5.0, 20.0)))
            case _:
                return (number,)

    async def _submit_something(self) -> None:
        if self._memory.submitted >= self._limit:
            return
        job, args = self._any()
        options: dict[str, Any] = {}
        if self._chance.random() < 0.3:
            options["priority"] = self._chance.randrange(-2, 3)
        if self._chance.random() < 0.2:
            options["delay"] = self._chance.uniform(0.1, 20.0)
        if self._memory.timed:
            options["deadline"] = self._deadline(job.name, args)
        if self._memory.pauses and self._chance.random() < 0.4:
            options["queue"] = SIDE
        handle = await job.options(**options).submit(*args)
        self._acknowledged(handle)
        if job.name in ("listener", "braid"):
            await asyncio.sleep(self._chance.uniform(0.0, 1.0))  # it may be about to wait
            await self._signal()

    def _deadline(self, name: str, args: tuple[Any, ...]) -> float | None:
        """Most jobs have none; one that takes its time will hardly make it."""
        if name in TAKE_TIME:
            seconds: float = args[1]
            return self._chance.uniform(0.5, 2.5) * seconds
        return self._chance.uniform(0.5, 25.0) if self._chance.random() < 0.2 else None

    async def _submit_with_a_key(self) -> None:
        job: Any = self._chance.choice((self._jobs.plain, self._jobs.order))
        owner, key = self._chance.choice(("ann", "bob")), f"key-{self._chance.randrange(4)}"
        handle = await job.options(key=key, owner=owner).submit(self._chance.randrange(2))
        place = (owner, job.name, key)
        known = self._memory.keys.setdefault(place, handle.id)
        if known != handle.id:
            self._complain(f"key {key!r} of {owner} stands for {known} and {handle.id}")
        if others := [
            other for other, used in self._memory.keys.items() if used == handle.id and other != place
        ]:
            self._complain(f"job {handle.id} stands for {place} and {others}")
        self._acknowledged(handle)

    async def _submit_a_version(self) -> None:
        subject, version, rerun = "essay", self._chance.randrange(1, 5), self._chance.random() < 0.8
        memory, job = self._memory, self._jobs.plain
        if rerun or not memory.confirmed:
            memory.highest = max(version, memory.highest)  # it counts, even without an acknowledgement
        try:
            handle = await job.options(subject=subject, version=version, rerun=rerun).submit(version)
        except VersionRefused:
            if rerun and version == memory.highest:
                self._complain(f"version {version} of {subject!r} was refused, and none is higher")
            return
        known = memory.versions.setdefault((subject, version), handle.id)
        if known != handle.id:
            self._complain(f"version {version} of {subject!r} stands for {known} and {handle.id}")
        if version < memory.confirmed:
            self._complain(f"version {version} of {subject!r} was accepted after {memory.confirmed}")
        if not rerun and not handle.existing and memory.confirmed:
            self._complain(f"version {version} of {subject!r} ran after {memory.confirmed}, without rerun")
        memory.confirmed = max(version, memory.confirmed)
        self._acknowledged(handle)

    async def _submit_many(self) -> None:
        if self._memory.submitted >= self._limit:
            return
        handles = await self._jobs.blocking.submit_many((n,) for n in range(3))
        self._memory.submitted += 3
        for handle in handles:
            self._acknowledged(handle)

    async def _submit_a_crowd(self) -> None:
        """Submit more jobs at once than a provider allows calls."""
        if self._memory.submitted >= self._limit:
            return
        assert self._jobs.provided is not None
        job: Any = self._chance.choice(self._jobs.provided)
        size = self._chance.choice((4, 8))
        handles = await job.submit_many((n,) for n in range(size))
        self._memory.submitted += size
        for handle in handles:
            self._acknowledged(handle)

    async def _override_a_provider(self) -> None:
        """Set an override of a provider, or remove it, also where that is refused."""
        if self._memory.settled:
            return
        providers, name = self._hold.providers, self._chance.choice(NAMES)
        overrides: list[Any] = [providers.pause, providers.open, providers.close, providers.observe]
        change = self._chance.choice([*overrides, *[providers.resume] * 4, *[providers.probe] * 3])
        try:
            await change(name, actor="people")
        except StateRefused:
            return

    async def _remove_overrides(self) -> None:
        """Remove all overrides, and probe most of the providers whose breaker is open."""
        self._memory.settled = True
        for name in NAMES:
            with suppress(StateRefused):
                await self._hold.providers.resume(name, actor="people")
            with suppress(StateRefused):
                if self._chance.random() < 0.8:
                    await self._hold.providers.probe(name, actor="people")

    def _acknowledged(self, handle: JobHandle[Any]) -> None:
        self._memory.acknowledged[handle.id] = handle.name

    async def _cancel(self) -> None:
        running = await self._hold.find(JobFilter(status=Status.PROCESSING, limit=1))
        job_id = running[0].id if running and self._chance.random() < 0.5 else self._known()
        if job_id is None:
            return
        try:
            if await self._hold.cancel(job_id) is Status.CANCELLED:
                self._memory.cancelled.add(job_id)
        except StateRefused:
            job = await self._hold.read(job_id)
            if not job.status.ended and job.generation == 1:
                self._complain(f"job {job_id} is {job.status}, but could not be cancelled")

    async def _bring_back(self) -> None:
        """Retry what failed, and also other jobs: it is for the store to refuse."""
        failed = [job.id for job in await self._hold.find(JobFilter(status=Status.FAILED, limit=3))]
        known = self._known()
        for job_id in failed if known is None else [*failed, known]:
            try:
                await self._hold.retry(job_id)
            except StateRefused:
                continue

    async def _signal(self) -> None:
        """Send a signal to a job: too early, just in time, twice, or in vain."""
        receivers = ("listener", "sleeper", "braid")
        live = [job_id for job_id, name in self._memory.acknowledged.items() if name in receivers]
        if not live:
            return
        job_id = self._chance.choice([*live[-4:], live[-1]])
        try:
            for _ in range(self._chance.choice((1, 1, 2))):
                await self._send_signal(job_id)
        except StateRefused:
            job = await self._hold.read(job_id)
            if not job.status.ended and job.generation == 1:
                self._complain(f"job {job_id} is {job.status}, but no signal reached it")

    async def _send_signal(self, job_id: str) -> None:
        self._memory.said += 1
        word = f"word {self._memory.said}"
        await self._hold.signal(job_id, GO, word)
        self._memory.signalled[word] = job_id

    async def _accept_what_is_late(self) -> None:
        """Accept late results, and also those of other jobs: it is for the store to refuse."""
        failed = [
            job.id for job in await self._hold.find(JobFilter(status=Status.FAILED, name="dogged", limit=3))
        ]
        known = [job_id for job_id in (self._known(), *self._memory.accepted[-1:]) if job_id is not None]
        for job_id in [*failed, *known]:
            try:
                await self._hold.accept_late(job_id, actor="people")
            except StateRefused:
                continue
            self._memory.accepted.append(job_id)

    async def _pause_or_resume(self) -> None:
        if self._chance.random() < 0.5:
            await self._hold.queues.pause(SIDE, actor="people")
        else:
            await self._hold.queues.resume(SIDE, actor="people")

    async def _wait(self) -> None:
        job_id = self._known()
        if job_id is None:
            return
        handle = self._hold.handle(job_id, self._memory.acknowledged[job_id])
        try:
            result = await handle.result(timeout=self._chance.uniform(0.1, 30.0))
        except (JobFailed, JobCancelled, ResultTimeout):
            return
        if self._memory.results.setdefault(job_id, result) != result:
            self._complain(f"job {job_id} gave {self._memory.results[job_id]}, then {result}")

    def _known(self) -> str | None:
        return self._chance.choice(list(self._memory.acknowledged)) if self._memory.acknowledged else None


def _go_on() -> None:
    """Take back a cancellation."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
