"""`Holdfast`: the one object an application makes."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, cast, overload

from holdfast.config import load_settings
from holdfast.core.backoff import Backoff, RetryPolicy
from holdfast.core.durations import Length, duration
from holdfast.core.errors import ConfigError
from holdfast.core.jobs import Event, Job, JobFilter, Receipt, Submission
from holdfast.core.redaction import Redact, redact
from holdfast.core.rules import Rule
from holdfast.core.states import Status
from holdfast.engine.parts import Parts
from holdfast.engine.patience import Patience
from holdfast.engine.registry import JobSpec, Registry, StageSpec
from holdfast.engine.shapes import Shape
from holdfast.engine.submitting import Submitter
from holdfast.engine.waiting import Waiter
from holdfast.engine.worker import Worker
from holdfast.face.handles import JobHandle
from holdfast.face.jobs import LONGEST_WORD, JobFunction, is_word
from holdfast.face.running import running
from holdfast.face.stages import StageFunction
from holdfast.ports import Journal, Metrics, SchemaState
from holdfast.wiring import assemble

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast:
    """Keeps jobs: declares them, stores them, runs them.

    *url* is `sqlite:///file.db` or `postgresql://…`; without it `DATABASE_URL` decides. What is not
    given as an argument comes from the environment, and then from the defaults of `Settings`.

    >>> hold = Holdfast("sqlite:///holdfast.db")
    >>> @hold.job("greet")
    ... async def greet(name: str) -> str:
    ...     return f"hello {name}"
    >>> greet.name
    'greet'
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        strict_keys: bool = False,
        rules: Iterable[Rule] = (),
        redactor: Redact = redact,
        journal: Journal | None = None,
        metrics: Metrics | None = None,
        assemble: Callable[..., Parts] = assemble,
    ) -> None:
        self.settings = load_settings(database_url=url, retry_max_attempts=attempts)
        self.strict_keys = strict_keys
        self._policy = self.settings.retry_policy
        if backoff is not None:
            self._policy = replace(self._policy, backoff=backoff)
        self._registry = Registry()
        self._use(
            assemble(
                self.settings,
                registry=self._registry,
                rules=tuple(rules),
                redactor=redactor,
                journal=journal,
                metrics=metrics,
            )
        )

    def _use(self, parts: Parts) -> None:
        """Work with *parts* from now on: the real ones, or those of a simulated world."""
        self.parts = parts
        self._submitter = Submitter(
            parts.store, Patience(parts.clock, parts.dice), journal=parts.journal, metrics=parts.metrics
        )
        self._waiter = self._new_waiter()
        self._opened = False
        self._door = asyncio.Lock()

    def _new_waiter(self) -> Waiter:
        return Waiter(self.parts.store, self.parts.dice, poll=self.settings.worker_options.poll)

    def job(
        self,
        name: str | None = None,
        *,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: Length | None = None,
        queue: str = "default",
        priority: int = 0,
    ) -> "_JobDecorator":
        """Declare a job: each call submitted of the function is stored, then run by a worker.

        *attempts* counts the first one. *timeout* limits one attempt. Higher *priority* runs first.
        """

        def declare(function: Callable[..., Any]) -> JobFunction[..., Any]:
            known = _named(name or function.__name__, "job")
            spec = JobSpec(
                name=known,
                function=function,
                shape=Shape(function, what=f"job {known!r}"),
                policy=self._policy_of(attempts, backoff),
                queue=_named(queue, "queue"),
                priority=priority,
                timeout=None if timeout is None else duration(timeout),
                is_async=inspect.iscoroutinefunction(function),
            )
            for stage in _stages_named_in(function):
                spec.saw_stage(stage.spec)
            self._registry.add(spec)
            return JobFunction(self, spec)

        return _JobDecorator(declare)

    def stage(
        self,
        name: str | None = None,
        *,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: Length | None = None,
    ) -> "_StageDecorator":
        """Declare a stage: inside a job it runs once, and its result is kept for later attempts."""

        def declare(function: Callable[..., Any]) -> StageFunction[..., Any]:
            known = _named(name or function.__name__, "stage")
            spec = StageSpec(
                name=known,
                function=function,
                shape=Shape(function, what=f"stage {known!r}"),
                policy=self._policy_of(attempts, backoff),
                is_async=inspect.iscoroutinefunction(function),
                timeout=None if timeout is None else duration(timeout),
            )
            return StageFunction(spec)

        return _StageDecorator(declare)

    def _policy_of(self, attempts: int | None, backoff: Backoff | None) -> RetryPolicy:
        try:
            return RetryPolicy(
                self._policy.attempts if attempts is None else attempts,
                self._policy.backoff if backoff is None else backoff,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from None

    async def open(self) -> None:
        """Connect to the store. Everything that needs it does this by itself."""
        if self._opened:
            return
        async with self._door:  # many first submissions at once shall not open it as many times
            if not self._opened:
                await self.parts.store.open()
                self._opened = True

    async def close(self) -> None:
        """Let go of the store, after what was submitted is stored."""
        await self._submitter.drain()
        await self._waiter.close()
        self._waiter, self._door = (
            self._new_waiter(),
            asyncio.Lock(),
        )  # the next event loop may be another one
        await self.parts.store.close()
        self.parts.executor.close()
        self._opened = False

    async def __aenter__(self) -> "Holdfast":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def apply_schema(self) -> SchemaState:
        """Bring the database to this code's schema, and tell what it was before."""
        return await self.parts.store.apply_schema()

    @asynccontextmanager
    async def worker(
        self,
        *,
        slots: int | None = None,
        queues: Sequence[str] | None = None,
        lease: Length | None = None,
        grace: Length | None = None,
        poll: Length | None = None,
    ) -> AsyncIterator[Worker]:
        """Run a worker while the block runs; at its end it finishes what it has in hand."""
        await self.open()
        options = _given(
            self.settings.worker_options, slots=slots, queues=queues, lease=lease, grace=grace, poll=poll
        )
        async with running(Worker(self.parts.ids.worker_id(), self.parts, options)) as worker:
            yield worker

    async def _submit(
        self, name: str, batch: Sequence[Submission], within: Any = None
    ) -> list[JobHandle[Any]]:
        """Store calls of the job *name*; `JobFunction.submit` is the way to make them."""
        await self.open()
        receipts = await self._stored(batch, within)
        return [JobHandle(self, receipt, name=name) for receipt in receipts]

    async def _stored(self, batch: Sequence[Submission], within: Any) -> list[Receipt]:
        if within is not None:
            return await self._submitter.submit_within(within, batch)
        if len(batch) == 1:
            return [await self._submitter.submit(batch[0])]
        return await self._submitter.submit_many(batch)

    def handle(self, job_id: str, name: str = "") -> JobHandle[Any]:
        """Give a handle to a job that was submitted before, perhaps elsewhere."""
        return JobHandle(self, Receipt(job_id, existing=True), name=name)

    async def wait(self, job_id: str, *, timeout: Length | None = None, owner: str | None = None) -> Job:
        """Wait until the job has ended, and read it. Raises `ResultTimeout`, `JobNotFound`."""
        job = await self.read(job_id, owner=owner)
        if not job.status.ended:
            # By the id as it is stored: the store names those that ended, and knows one spelling.
            await self._waiter.wait(job.id, timeout=None if timeout is None else duration(timeout))
            job = await self.parts.store.get(job.id)
        return job

    async def read(self, job_id: str, *, owner: str | None = None) -> Job:
        """Read a job. Raises `JobNotFound` if it is absent or not *owner*'s."""
        await self.open()
        return await self.parts.store.get(job_id, owner=owner)

    async def find(self, wanted: JobFilter = JobFilter()) -> list[Job]:  # noqa: B008 - a frozen value
        """List jobs, newest first."""
        await self.open()
        return await self.parts.store.find(wanted)

    async def events(self, job_id: str, *, owner: str | None = None) -> list[Event]:
        """Read a job's history, in order. Raises `JobNotFound` if it is absent or not *owner*'s."""
        await self.read(job_id, owner=owner)
        return await self.parts.store.events(job_id)

    async def cancel(self, job_id: str, *, owner: str | None = None) -> Status:
        """End a job that waits, or ask the worker of a running one to stop it."""
        await self.open()
        return await self.parts.store.cancel(job_id, owner=owner)

    async def retry(self, job_id: str, *, owner: str | None = None) -> Job:
        """Bring a failed job back, from the stage that failed, with fresh attempts."""
        await self.open()
        return await self.parts.store.retry(job_id, owner=owner)

    def load_result(self, job: Job) -> Any:
        """Read a job's result, with the type that its function declares here."""
        spec = self._registry.get(job.name)
        if spec is None:
            raise ConfigError(
                f"no job named {job.name!r} is declared here; import the module that declares it"
            )
        return spec.shape.load_result(job.result or "null")

    def _new_id(self) -> str:
        """Make an id for a job."""
        return self.parts.ids.job_id()


class _JobDecorator:
    def __init__(self, declare: Callable[[Callable[..., Any]], JobFunction[..., Any]]) -> None:
        self._declare = declare

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> JobFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> JobFunction[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> JobFunction[..., Any]:
        return self._declare(function)


class _StageDecorator:
    def __init__(self, declare: Callable[[Callable[..., Any]], StageFunction[..., Any]]) -> None:
        self._declare = declare

    def __call__(self, function: Callable[P, R]) -> StageFunction[P, R]:
        return cast("StageFunction[P, R]", self._declare(function))


def _named(name: str, what: str) -> str:
    if not name or not is_word(name):
        raise ConfigError(
            f"{name!r} cannot name a {what}; use printable text of 1 to {LONGEST_WORD} characters"
        )
    return name


def _stages_named_in(function: Callable[..., Any]) -> list[StageFunction[..., Any]]:
    """Find the stages that a job's function names: their budgets bound its crashes."""
    plain = getattr(function, "__func__", function)
    names = getattr(getattr(plain, "__code__", None), "co_names", ())
    named = [plain.__globals__.get(name) for name in names]
    for cell in getattr(plain, "__closure__", None) or ():
        with suppress(ValueError):  # a name that is given to something later, perhaps to this job
            named.append(cell.cell_contents)
    return [value for value in named if isinstance(value, StageFunction)]


def _given(options: Any, **changes: Any) -> Any:
    lengths = ("lease", "grace", "poll")
    given = {name: value for name, value in changes.items() if value is not None}
    if isinstance(given.get("queues"), str):
        raise ConfigError(f"queues={given['queues']!r} is one text; give a list of names")
    return replace(options, **{name: duration(v) if name in lengths else v for name, v in given.items()})
