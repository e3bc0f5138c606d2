"""`Holdfast`: the one object an application makes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, ParamSpec, TypeVar, get_args, overload

from holdfast.config import load_settings
from holdfast.core.coroutines import run_here
from holdfast.core.dead_letters.replay_plan import AutoReplay
from holdfast.core.dead_letters.retention import Retention
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError, StateRefused, WithinUnsupported
from holdfast.core.failures.backoff import Backoff
from holdfast.core.failures.rules import Rule
from holdfast.core.jobs.job import End, Event, Job, JobFilter, Receipt, Submission
from holdfast.core.jobs.schedules import Missed, Schedule, Ticks, every
from holdfast.core.jobs.states import Status
from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.provider import ProviderState
from holdfast.core.redaction import Redactor
from holdfast.core.strict_json import encode, ensure_storable
from holdfast.core.within import kind_of
from holdfast.engine.dead_letters.service import DeadLetterService
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.context import CALLING, CURRENT, STAGE
from holdfast.engine.naming import name_and_queue
from holdfast.engine.options import Hook
from holdfast.engine.providers.shared_state import Step, swap
from holdfast.engine.registry import OnDeadline, Registry
from holdfast.engine.result_waiter import ResultWaiter
from holdfast.engine.runtime import Runtime
from holdfast.engine.store_retry import StoreRetry
from holdfast.engine.submitter import Submitter
from holdfast.engine.worker.worker import Worker
from holdfast.face.current import ensure_going_on
from holdfast.face.dead import DeadLetters
from holdfast.face.declaring import (
    JobDecorator,
    StageDecorator,
    job_spec,
    length_of,
    named,
    policy_of,
    provider_spec,
    stage_spec,
)
from holdfast.face.handles import JobHandle
from holdfast.face.jobs import JobFunction
from holdfast.face.providers import (
    Provider,
    Providers,
    ProviderStatus,
    statuses,
    unknown_provider,
)
from holdfast.face.running import running
from holdfast.face.stages import StageFunction
from holdfast.face.sync import Portal, in_sync
from holdfast.ports import Codec, Logger, Metrics, SchemaState
from holdfast.ports.providers import ProviderEvent
from holdfast.ports.schema import APPLY_LIMIT, LockWait
from holdfast.wiring import assemble
from holdfast.wiring.cron import cron

P = ParamSpec("P")
R = TypeVar("R")
HookT = TypeVar("HookT", bound=Hook)


class Holdfast:
    """Keeps jobs: declares them, stores them, runs them.

    *url* is `sqlite:///file.db` or `postgresql://…`; without it `DATABASE_URL` decides. What is not
    given as an argument comes from the environment, and then from the defaults of `Settings`. Applications that share a
    PostgreSQL database have a *schema* each, and see nothing of each other. A *codec*
    turns arguments and results into what is stored, to encrypt them, for example. A *redactor* takes secrets out of all
    that is told. Dead letters go to the *archive*, a folder or `s3://bucket/prefix`, when their *retention* is over; a
    replay compares the *code_version* with that of the failure.

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
        schema: str | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        strict_keys: bool = False,
        rules: Iterable[Rule] = (),
        redactor: Redactor | None = None,
        archive: str | None = None,
        retention: Retention | None = None,
        code_version: str | None = None,
        codec: Codec | None = None,
        logger: Logger | None = None,
        metrics: Metrics | None = None,
        assemble: Callable[..., Runtime] = assemble,
    ) -> None:
        self.settings = load_settings(
            database_url=url,
            database_schema=schema,
            retry_max_attempts=attempts,
            archive_url=archive,
            code_version=code_version,
        )
        self.strict_keys = strict_keys
        self._policy = self.settings.retry_policy
        if backoff is not None:
            self._policy = replace(self._policy, backoff=backoff)
        self._registry = Registry()
        self._hooks: list[Hook] = []
        self._assemble = partial(
            assemble,
            self.settings,
            registry=self._registry,
            rules=tuple(rules),
            redactor=redactor,
            retention=retention,
            hooks=self._hooks,
            logger=logger,
            metrics=metrics,
            **({} if codec is None else {"codec": codec}),
        )
        self._portal = Portal(self)
        self._use(self._assemble())

    def _use(self, runtime: Runtime) -> None:
        """Work with *parts* from now on: the real ones, or those of a simulated world."""
        self.runtime = runtime
        self._submitter = Submitter(
            runtime.store,
            StoreRetry(runtime.clock, runtime.dice),
            logger=runtime.logger,
            metrics=runtime.metrics,
        )
        self._waiter = self._new_waiter()
        self._opened = False
        self._door = asyncio.Lock()

    def _twin(self) -> "Holdfast":
        """Make one with the same declarations and connections of its own, for another event loop."""
        twin = copy(self)
        twin._use(replace(self._assemble(), logger=self.runtime.logger, metrics=self.runtime.metrics))
        return twin

    def _on(self, hold: "Holdfast") -> "Holdfast":
        return hold

    @property
    def _url(self) -> str:
        """The address of the database with the jobs."""
        return self.settings.database_url

    def _new_waiter(self) -> ResultWaiter:
        return ResultWaiter(self.runtime.store, self.runtime.dice, poll=self.settings.worker_options.poll)

    @overload
    def job(self, name: Callable[P, Awaitable[R]], /) -> JobFunction[P, R]: ...
    @overload
    def job(self, name: Callable[P, R], /) -> JobFunction[P, R]: ...
    @overload
    def job(
        self,
        name: str | None = None,
        *,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        max_wait: Duration | None = None,
        timeout: Duration | None = None,
        deadline: Duration | None = None,
        on_deadline: OnDeadline = "cancel",
        on_exhausted: Mapping[str, str | Iterable[str]] | None = None,
        auto_replay: AutoReplay | None = None,
        max_failed_runs: int | None = None,
        queue: str = "default",
        priority: int = 0,
        aliases: Sequence[str] = (),
    ) -> JobDecorator: ...
    def job(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        max_wait: Duration | None = None,
        timeout: Duration | None = None,
        deadline: Duration | None = None,
        on_deadline: OnDeadline = "cancel",
        on_exhausted: Mapping[str, str | Iterable[str]] | None = None,
        auto_replay: AutoReplay | None = None,
        max_failed_runs: int | None = None,
        queue: str = "default",
        priority: int = 0,
        aliases: Sequence[str] = (),
    ) -> JobDecorator | JobFunction[..., Any]:
        """Declare a job: each call submitted of the function is stored, then run by a worker.

        Used as `@hold.job`, or as `@hold.job(...)` with options.

        *attempts* counts the first one. *max_failed_runs* limits the runs that fail or lose their worker, whatever the
        stages of the job store in between; without it, that is 100 times the attempts. A retry waits at most 300 s, or
        *max_wait*. *timeout* limits one attempt. *deadline* limits everything, from
        submission on: waiting, attempts and retries; a handler that runs then is cancelled, or with
        *on_deadline* `"finish"` goes on, and its result is kept as late. Higher *priority* runs first.
        *aliases* are names that it had before: jobs stored under them run here, too.

        *on_exhausted* says what follows when no attempt is left, by the class of the failure: `{"NETWORK_TIMEOUT":
        "page"}`; the words are `review`, `alert`, `page` and `backup`, one or several. *auto_replay* lets a job that
        failed go on once without a person.
        """

        def declare(function: Callable[..., Any]) -> JobFunction[..., Any]:
            spec = job_spec(
                function,
                name=None if callable(name) else name,
                policy=policy_of(self._policy, attempts, backoff, max_wait),
                timeout=timeout,
                deadline=deadline,
                on_deadline=on_deadline,
                on_exhausted=on_exhausted,
                auto_replay=auto_replay,
                max_failed_runs=max_failed_runs,
                queue=queue,
                priority=priority,
                aliases=aliases,
            )
            self._registry.add(spec)
            return JobFunction(self, spec)

        return declare(name) if callable(name) else JobDecorator(declare)

    def every(
        self, length: Duration, *, name: str | None = None, missed: Missed = "latest"
    ) -> Callable[[JobFunction[[], R]], JobFunction[[], R]]:
        """Submit the job below by itself, at whole multiples of *length*: each hour on the hour.

        Once for each tick, over all workers. *missed* says what becomes of ticks that no worker was there
        for: `"latest"` makes up for the last, `"all"` for each, `"skip"` for none.
        """
        step = length_of(length)
        if step < timedelta(seconds=1):
            raise ConfigError(f"every({length!r}) is too often; a second is the least")
        return self._recurring(f"every {length}", every(step), name, missed)

    def cron(
        self, expression: str, *, tz: str = "UTC", name: str | None = None, missed: Missed = "latest"
    ) -> Callable[[JobFunction[[], R]], JobFunction[[], R]]:
        """Submit the job below by itself, when the cron *expression* says so in the time zone *tz*.

        Once for each tick, over all workers; *missed* as with `every`.
        """
        return self._recurring(f"cron {expression} ({tz})", cron(expression, tz), name, missed)

    def _recurring(
        self, told: str, ticks: Ticks, name: str | None, missed: Missed
    ) -> Callable[[JobFunction[[], R]], JobFunction[[], R]]:
        if missed not in get_args(Missed):
            raise ConfigError(f"missed={missed!r} is not usable: it is 'latest', 'all' or 'skip'")

        def declare(job: JobFunction[[], R]) -> JobFunction[[], R]:
            if not isinstance(job, JobFunction):
                raise ConfigError(
                    f"{told} stands above something that is no job; put it above @hold.job(...)"
                )
            job.spec.signature.dump_args((), {})  # it has to do without arguments
            known = named(name or job.name, "schedule")
            self._registry.recur(job.spec, Schedule(known, told, ticks, missed))
            return job

        return declare

    @overload
    def stage(self, name: Callable[P, R], /) -> StageFunction[P, R]: ...
    @overload
    def stage(
        self,
        name: str | None = None,
        *,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        max_wait: Duration | None = None,
        timeout: Duration | None = None,
        provider: Provider | None = None,
    ) -> StageDecorator: ...
    def stage(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        max_wait: Duration | None = None,
        timeout: Duration | None = None,
        provider: Provider | None = None,
    ) -> StageDecorator | StageFunction[..., Any]:
        """Declare a stage: inside a job it runs once, and its result is kept for later attempts.

        Used as `@hold.stage`, or as `@hold.stage(...)` with options. Its name belongs to one function, since results are
        stored under it. With a *provider* it runs only while that lets calls through; meanwhile its job is held, with its attempts.
        """

        if provider is not None:
            self._ensure_declared_here(provider)

        def declare(function: Callable[..., Any]) -> StageFunction[..., Any]:
            policy = policy_of(self._policy, attempts, backoff, max_wait)
            known = None if callable(name) else name
            spec = stage_spec(function, name=known, policy=policy, timeout=timeout, provider=provider)
            self._registry.add_stage(spec)
            return StageFunction(spec)

        return declare(name) if callable(name) else StageDecorator(declare)

    def _ensure_declared_here(self, provider: Provider) -> None:
        if not isinstance(provider, Provider):
            raise ConfigError(
                f"provider={provider!r} is no provider; give what hold.provider({provider!r}) returned"
            )
        if self._registry.providers.get(provider.name) is not provider.spec:
            raise ConfigError(
                f"provider {provider.name!r} was declared with another Holdfast; declare it with this one"
            )

    def provider(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        breaker: Breaker | None = None,
        backup: "Provider | str | None" = None,
        retry_budget: float | None = None,
        key: Callable[[Any], str] | None = None,
        concurrency_per_key: int | None = None,
        rate_per_key: str | None = None,
        max_wait: Duration | None = None,
    ) -> Provider:
        """Declare an outside service, which all workers of the store call with one accord.

        *timeout* limits one call. *concurrency* and *rate* (`"60/min"`) limit all calls, over all workers. The
        *breaker* says when it counts as broken; *backup* is who is called instead. *retry_budget* is how many retries
        there may be for each first call, `0.2` for one in five. *key* tells customers apart by a stage's arguments,
        `lambda a: a.customer`: they take turns, and each has the limits *concurrency_per_key* and *rate_per_key*.
        A provider that asks to be left alone is, for at most 300 s, or *max_wait*.
        """
        spec = provider_spec(
            name,
            timeout=self.settings.gateway_timeout if timeout is None else timeout,
            concurrency=concurrency,
            rate=rate,
            breaker=self.settings.breaker if breaker is None else breaker,
            backup=backup,
            retry_budget=retry_budget,
            key=key,
            concurrency_per_key=concurrency_per_key,
            rate_per_key=rate_per_key,
            max_wait=max_wait,
        )
        self._registry.add_provider(spec)
        return Provider(spec)

    @property
    def providers(self) -> Providers:
        """What an operator sees of providers, and can lay down about them."""
        return Providers(self)

    async def _change_provider(self, name: str, step: Step[None], *, actor: str) -> None:
        """Lay something down about a provider, for all workers; their releasers hear of it within a poll."""
        if not actor:
            raise ConfigError("nobody is named; tell who decides, with actor=")
        await self._open_to_act()
        await self._ensure_provider(name)
        done = await swap(self.runtime.store, name, step, dice=self.runtime.dice)
        for entry in done.announcements:
            self.runtime.logger.info(f"provider {entry.kind}", provider=name, **entry.meta)

    async def _ensure_provider(self, name: str) -> None:
        known = {*self._registry.providers, *await self.runtime.store.providers.names()}
        if name not in known:
            raise unknown_provider(name, list(known), declared=bool(self._registry.providers))

    async def _provider_statuses(self, name: str | None) -> list[ProviderStatus]:
        await self.open()
        store, declared = self.runtime.store, self._registry.providers
        if name is not None:
            await self._ensure_provider(name)
        # Workers of an earlier version take jobs that are held for their name for those of a provider without one.
        names = sorted({*declared, *await store.providers.names()} - {""}) if name is None else [name]
        now, rows = await store.providers.read(names)
        states = {known: ProviderState.load(row.state) for known, row in rows.items()}
        return statuses(names, states, await store.providers.count_held(), declared, now)

    async def _provider_events(self, name: str, limit: int) -> list[ProviderEvent]:
        await self.open()
        await self._ensure_provider(name)
        return await self.runtime.store.providers.events(name, limit=limit)

    @property
    def dead(self) -> DeadLetters:
        """What is left of jobs that failed, and the way back."""
        return DeadLetters(self)

    async def _dead_letter_service(self) -> DeadLetterService:
        """Open the operator's desk."""
        await self._open_to_act()
        return DeadLetterService(self.runtime)

    def on_ticket(self, hook: HookT) -> HookT:
        """Have a function, plain or async, called with each `Ticket`: at least once, by one of the workers.

        Used as a decorator. One that raises, or takes more than 5 s, is called again after a minute, then each time
        after twice as long, up to 64 minutes.
        """
        if not callable(hook):
            raise ConfigError(f"on_ticket({hook!r}) is no function; give one that takes a Ticket")
        self._hooks.append(hook)
        return hook

    async def open(self) -> None:
        """Connect to the store. Everything that needs it does this by itself."""
        if self._opened:
            return
        async with self._door:  # many first submissions at once shall not open it as many times
            if not self._opened:
                await self.runtime.store.open()
                self.runtime.redactor.rekey(await self.runtime.store.redaction_key())
                self._opened = True

    async def _open_to_act(self) -> None:
        """Connect for something that takes effect, which nothing does any more in a job that is put back."""
        ensure_going_on()
        await self.open()

    async def close(self) -> None:
        """Let go of the store, after what was submitted is stored."""
        await self._submitter.drain()
        await self._waiter.close()
        self._waiter, self._door = (
            self._new_waiter(),
            asyncio.Lock(),
        )  # the next event loop may be another one
        await self.runtime.store.close()
        self.runtime.executor.close()
        self._opened = False

    async def __aenter__(self) -> "Holdfast":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def apply_schema(self, *, wait: Duration = APPLY_LIMIT) -> SchemaState:
        """Bring the database to this code's schema, and tell what it was before.

        While another session holds a lock on the tables, such as a backup, it is tried again and again for as long as
        *wait* says; each time a line in the log says which session that is, and workers go on. Raises
        `StoreUnavailable` then: nothing was changed.
        """
        return await self.runtime.store.apply_schema(limit=duration(wait), blocked=self._log_lock_wait)

    def _log_lock_wait(self, wait: LockWait) -> None:
        self.runtime.logger.warning(
            "schema apply blocked",
            waited_sec=round(wait.waited.total_seconds(), 1),
            sessions=[str(holder) for holder in wait.holders],
        )

    @asynccontextmanager
    async def worker(
        self,
        *,
        slots: int | None = None,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        lease: Duration | None = None,
        grace: Duration | None = None,
        poll: Duration | None = None,
    ) -> AsyncIterator[Worker]:
        """Run a worker while the block runs; at its end it finishes what it has in hand."""
        self.settings.ensure_usable()
        self._registry.ensure_backups()
        await self.open()
        options = _given(
            self.settings.worker_options, slots=slots, queues=queues, lease=lease, grace=grace, poll=poll
        )
        async with running(Worker(self.runtime.ids.worker_id(), self.runtime, options)) as worker:
            yield worker

    async def _submit(self, batch: Sequence[Submission], within: Any = None) -> list[Receipt]:
        """Store calls of jobs; `JobFunction.submit` is the way to make them."""
        await self._open_to_act()
        job = self._waiting_job()
        if job is None:
            return await self._stored(batch, within)
        with job.submitting():
            receipts = await self._stored(batch, within)
        job.submitted(batch, receipts)
        return receipts

    async def _stored(self, batch: Sequence[Submission], within: Any) -> list[Receipt]:
        if within is not None:
            return await self._submitter.submit_within(within, batch)
        if len(batch) == 1:
            return [await self._submitter.submit(batch[0])]
        return await self._submitter.submit_many(batch)

    def _submit_here(self, batch: Sequence[Submission], within: Any) -> list[Receipt]:
        """Store calls in this thread, which is the one that a plain connection may be used in."""
        ensure_going_on()
        kind = kind_of(within)
        if kind.awaits:
            raise WithinUnsupported(
                f"submit_sync() got {kind.value}, which works on its event loop only; write `await submit(...)` there"
            )
        return run_here(self._submitter.submit_within(within, batch))

    def handle(self, job_id: str, name: str = "") -> JobHandle[Any]:
        """Give a handle to a job that was submitted before, perhaps elsewhere."""
        return JobHandle(self, Receipt(job_id, existing=True), name=name)

    async def wait(self, job_id: str, *, timeout: Duration | None = None, owner: str | None = None) -> Job:
        """Wait until the job has ended, and read it. Raises `ResultTimeout`, `JobNotFound`."""
        job = await self.read(job_id, owner=owner)
        if not job.status.ended:
            limit = None if timeout is None else duration(timeout)
            # By the id as it is stored: the store names those that ended, and knows one spelling.
            await self._waiter.wait(job.id, timeout=limit)
            job = await self.runtime.store.get(job.id)
        return job

    async def _end_of(self, job_id: str, timeout: Duration | None) -> Job | End:
        """Wait for a job's end; inside a job, without a worker."""
        waiting = self._waiting_job()
        if waiting is None:
            return await self.wait(job_id, timeout=timeout)
        return await waiting.suspension.end_of(job_id, None if timeout is None else duration(timeout))

    def _waiting_job(self) -> Attempt | None:
        """Give the job that the running code belongs to, if it can wait without a worker; a stage cannot."""
        running = CURRENT.get()
        if running is None or not running.is_kept_by(self.runtime.store):
            return None
        if STAGE.get() is not None or CALLING.get():
            return None
        return running

    def _inside_a_job(self, what: str) -> Attempt:
        running = self._waiting_job()
        if running is None:
            raise ConfigError(
                f"{what} was called outside a job's function; call it there, and not inside a stage or a permit's block"
            )
        return running

    async def sleep(self, length: Duration) -> None:
        """Let the job that calls this rest for *length*, without a worker, over restarts."""
        await self._inside_a_job("sleep()").suspension.sleep(duration(length))

    async def wait_for(self, signal: str, *, timeout: Duration | None = None) -> Any:
        """Let the job that calls this wait, without a worker, until somebody signals; give what was sent along.

        Raises `SignalTimeout` after *timeout*.
        """
        limit = None if timeout is None else duration(timeout)
        return await self._inside_a_job("wait_for()").suspension.signal(named(signal, "signal"), limit)

    async def signal(
        self, job_id: str, signal: str, data: Any = None, *, owner: str | None = None, actor: str = ""
    ) -> None:
        """Tell a job something that it waits for now, or will later. Raises `StateRefused` if it has ended.

        Its history tells what was sent and when, and by whom if *actor* says so.
        """
        ensure_storable(owner=owner, actor=actor)
        await self._open_to_act()
        text = encode(data, what=f"data of signal {signal!r}")
        await self.runtime.store.signal(job_id, named(signal, "signal"), text, owner=owner, actor=actor)
        self.runtime.metrics.count("signals_sent")
        its = await name_and_queue(self.runtime.store, job_id)
        self.runtime.logger.info("signal sent", job_id=job_id, **its, signal=signal, actor=actor)

    async def read(self, job_id: str, *, owner: str | None = None) -> Job:
        """Read a job. Raises `JobNotFound` if it is absent or not *owner*'s."""
        ensure_storable(owner=owner)
        await self.open()
        return await self.runtime.store.get(job_id, owner=owner)

    async def find(self, wanted: JobFilter = JobFilter()) -> list[Job]:  # noqa: B008 - a frozen value
        """List jobs, newest first."""
        await self.open()
        return await self.runtime.store.find(wanted)

    async def events(self, job_id: str, *, owner: str | None = None) -> list[Event]:
        """Read a job's history, in order. Raises `JobNotFound` if it is absent or not *owner*'s."""
        await self.read(job_id, owner=owner)
        return await self.runtime.store.events(job_id)

    async def cancel(self, job_id: str, *, owner: str | None = None) -> Status:
        """End a job that waits, or ask the worker of a running one to stop it."""
        ensure_storable(owner=owner)
        await self._open_to_act()
        return await self.runtime.store.cancel(job_id, owner=owner)

    async def retry(self, job_id: str, *, owner: str | None = None) -> Job:
        """Bring a failed job back, from the stage that failed, with fresh attempts."""
        ensure_storable(owner=owner)
        await self._open_to_act()
        return await self.runtime.store.retry(job_id, owner=owner)

    async def pause_queue(self, queue: str, *, actor: str, reason: str = "") -> bool:
        """Have no worker start jobs of *queue*, within a poll; what runs goes on. False if it was paused before."""
        ensure_storable(actor=actor, reason=reason)
        await self._open_to_act()
        paused = await self.runtime.store.queues.pause(named(queue, "queue"), actor=actor, reason=reason)
        if paused:
            self.runtime.logger.info("queue paused", queue=queue, actor=actor, reason=reason)
        return paused

    async def resume_queue(self, queue: str, *, actor: str) -> bool:
        """Let workers start jobs of *queue* again. False if it was not paused."""
        ensure_storable(queue=queue, actor=actor)
        await self._open_to_act()
        resumed = await self.runtime.store.queues.resume(queue)
        if resumed:
            self.runtime.logger.info("queue resumed", queue=queue, actor=actor)
        return resumed

    async def accept_late(
        self, job_id: str, *, actor: str, reason: str = "", owner: str | None = None
    ) -> Job:
        """Let a result stand that came after the deadline: the job has then completed with it.

        What the job names with `when_late_is_accepted` is submitted in the same transaction, so the job has
        to be declared here. Raises `StateRefused` if there is no late result.
        """
        ensure_storable(actor=actor, reason=reason, owner=owner)
        await self._open_to_act()
        job = await self.read(job_id, owner=owner)
        spec = self._registry.get(job.name)
        if spec is None:
            raise ConfigError(
                f"no job named {job.name!r} is declared here, so what follows an acceptance is not known; "
                "import the module that declares it"
            )
        if job.late_result is None:
            raise StateRefused(f"job {job_id} is {job.status} and has no late result that could be accepted")
        then = None
        if spec.on_accept:
            follower: JobFunction[..., Any] = spec.on_accept[0]
            then = follower._follows(job.id, spec.signature.load_result(job.late_result))
        meta = json.dumps({"actor": actor, **({"reason": reason} if reason else {})})
        # Of the result that was read, and of no other that may have come since: what follows was made of it.
        accepted = await self.runtime.store.accept_late(
            job.id, owner=owner, meta=meta, then=then, late_at=job.late_at
        )
        self.runtime.logger.info(
            "late result accepted", job_id=job.id, name=job.name, queue=job.queue, actor=actor
        )
        return accepted

    open_sync = in_sync(open)  # noqa: A003 - the method above is meant
    apply_schema_sync = in_sync(apply_schema)
    read_sync = in_sync(read)
    wait_sync = in_sync(wait)
    find_sync = in_sync(find)
    events_sync = in_sync(events)
    cancel_sync = in_sync(cancel)
    retry_sync = in_sync(retry)
    signal_sync = in_sync(signal)
    pause_queue_sync = in_sync(pause_queue)
    resume_queue_sync = in_sync(resume_queue)
    accept_late_sync = in_sync(accept_late)
    sleep_sync = in_sync(sleep)
    wait_for_sync = in_sync(wait_for)

    def close_sync(self) -> None:
        """Let go of what the `_sync` verbs opened, after what was submitted is stored; the next one opens it again."""
        self._portal.close()

    def load_result(self, job: Job) -> Any:
        """Read a job's result, with the type that its function declares here."""
        return self._loaded(job.name, job.result)

    def _loaded(self, name: str, result: str | None) -> Any:
        spec = self._registry.get(name)
        if spec is None:
            raise ConfigError(f"no job named {name!r} is declared here; import the module that declares it")
        return spec.signature.load_result(result or "null")

    def _new_id(self) -> str:
        """Make an id for a job."""
        return self.runtime.ids.job_id()


def _given(options: Any, **changes: Any) -> Any:
    given = {name: value for name, value in changes.items() if value is not None}
    if isinstance(given.get("queues"), str):
        raise ConfigError(f"queues={given['queues']!r} is one text; give a list of names")
    return replace(options, **given)
