"""The declarations of an application: its jobs, stages, queues, providers, schedules, messages and hooks.

They need no store.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from pydantic import BaseModel

from holdfast.app.job_function import JobFunction
from holdfast.app.messages.message_declarations import MessageDeclarations
from holdfast.app.provider import Provider
from holdfast.app.specs import (
    JobDecorator,
    ScheduleDecorator,
    ScheduleWithArguments,
    StageDecorator,
    ensure_declared,
    job_spec,
    length_of,
    policy_of,
    provider_spec,
    stage_spec,
)
from holdfast.app.stage_function import StageFunction
from holdfast.config import Settings
from holdfast.core.dead_letters.replay_plan import AutoReplay
from holdfast.core.durations import Duration
from holdfast.core.errors import ConfigError
from holdfast.core.failures.backoff import Backoff
from holdfast.core.jobs.schedules import Missed, every
from holdfast.core.messages.announcements import Render
from holdfast.core.names import ensure_name
from holdfast.core.providers.breaker import Breaker
from holdfast.engine.options import Hook
from holdfast.engine.registry import JobSpec, OnDeadline, Registry
from holdfast.ports.fleets import Transport
from holdfast.wiring.cron import cron

P = ParamSpec("P")
R = TypeVar("R")
HookT = TypeVar("HookT", bound=Hook)
MessageT = TypeVar("MessageT", bound=BaseModel)
ModelT = TypeVar("ModelT", bound=type[BaseModel])


class Declarations(MessageDeclarations):
    """Declares jobs, stages, providers, schedules and messages, with the defaults of *settings* and *backoff*.

    A mistake raises `ConfigError` at the declaration, when the application starts.
    """

    def __init__(self, settings: Settings, *, backoff: Backoff | None) -> None:
        self.settings = settings
        policy = settings.retry_policy
        self._policy = policy if backoff is None else replace(policy, backoff=backoff)
        self._registry = Registry()
        self._hooks: list[Hook] = []

    @abstractmethod
    def _job_function(self, spec: JobSpec) -> JobFunction[..., Any]:
        """Return the function whose calls can be submitted."""

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
        announce: Mapping[str, Render] | None = None,
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
        announce: Mapping[str, Render] | None = None,
        max_failed_runs: int | None = None,
        queue: str = "default",
        priority: int = 0,
        aliases: Sequence[str] = (),
    ) -> JobDecorator | JobFunction[..., Any]:
        """Declare a job: each submitted call of the function is stored, then run by a worker.

        Used as `@hold.job`, or as `@hold.job(...)` with options.

        *attempts* includes the first one. *max_failed_runs* limits the runs that fail or lose their worker, whether or
        not stages finish in between; the default is 100 times the attempts. A retry waits at most 300 s, or *max_wait*.
        *timeout* limits one attempt. *deadline* limits the time from submission to the end, with all waits, attempts and
        retries; a function that runs then is cancelled, or with *on_deadline* `"finish"` continues, and its result is
        kept as late. Higher *priority* runs first. *aliases* are earlier names: jobs stored under them run here, too.

        *on_exhausted* says what follows when no attempt is left, by the class of the failure: `{"NETWORK_TIMEOUT":
        "page"}`; the values are `review`, `alert`, `page` and `backup`, one or several. With *auto_replay* a failed job is
        replayed once without an operator.

        *announce* maps `completed`, `failed`, `cancelled`, `timed_out` and `retrying` to plain functions that take an
        `Announcement` and return the messages to publish: one, a list, or `None`. They are called after the transition
        is stored, by a worker that declares the job, and may be called again.
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
                announce=announce,
                max_failed_runs=max_failed_runs,
                queue=queue,
                priority=priority,
                aliases=aliases,
            )
            self._registry.add(spec)
            return self._job_function(spec)

        return declare(name) if callable(name) else JobDecorator(declare)

    @overload
    def every(
        self, length: Duration, *, name: str | None = None, missed: Missed = "latest"
    ) -> ScheduleDecorator: ...
    @overload
    def every(
        self,
        length: Duration,
        *,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        missed: Missed = "latest",
    ) -> ScheduleWithArguments: ...
    @overload
    def every(
        self,
        length: Duration,
        *,
        kwargs: Mapping[str, Any],
        name: str | None = None,
        missed: Missed = "latest",
    ) -> ScheduleWithArguments: ...
    def every(
        self,
        length: Duration,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        missed: Missed = "latest",
    ) -> ScheduleDecorator:
        """Submit the decorated job at whole multiples of *length*, for example each hour on the hour.

        Each tick submits one job, with *args* and *kwargs*, however many workers run. *missed* decides about ticks for
        which no worker ran: `"latest"` submits the last one, `"all"` each of them, `"skip"` none.
        """
        step = length_of(length)
        if step < timedelta(seconds=1):
            raise ConfigError(f"every({length!r}) is too often; a second is the least")
        return ScheduleWithArguments(
            self._registry,
            f"every {length}",
            every(step),
            name=name,
            missed=missed,
            args=args,
            kwargs=kwargs,
        )

    @overload
    def cron(
        self, expression: str, *, tz: str = "UTC", name: str | None = None, missed: Missed = "latest"
    ) -> ScheduleDecorator: ...
    @overload
    def cron(
        self,
        expression: str,
        *,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        tz: str = "UTC",
        name: str | None = None,
        missed: Missed = "latest",
    ) -> ScheduleWithArguments: ...
    @overload
    def cron(
        self,
        expression: str,
        *,
        kwargs: Mapping[str, Any],
        tz: str = "UTC",
        name: str | None = None,
        missed: Missed = "latest",
    ) -> ScheduleWithArguments: ...
    def cron(
        self,
        expression: str,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        tz: str = "UTC",
        name: str | None = None,
        missed: Missed = "latest",
    ) -> ScheduleDecorator:
        """Submit the decorated job at the times of the cron *expression*, in the time zone *tz*.

        Each tick submits one job, with *args* and *kwargs*, however many workers run; *missed* as with `every`.
        """
        return ScheduleWithArguments(
            self._registry,
            f"cron {expression} ({tz})",
            cron(expression, tz),
            name=name,
            missed=missed,
            args=args,
            kwargs=kwargs,
        )

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
        """Declare a stage: inside a job it runs once, and its result is stored for later attempts.

        Used as `@hold.stage`, or as `@hold.stage(...)` with options. Its name belongs to one function, since results are
        stored under it. With a *provider* it runs only while the provider's breaker and limits allow a call; until then
        its job is held, which costs no attempt.
        """

        if provider is not None:
            ensure_declared(provider, self._registry)

        def declare(function: Callable[..., Any]) -> StageFunction[..., Any]:
            policy = policy_of(self._policy, attempts, backoff, max_wait)
            known = None if callable(name) else name
            spec = stage_spec(function, name=known, policy=policy, timeout=timeout, provider=provider)
            self._registry.add_stage(spec)
            return StageFunction(spec)

        return declare(name) if callable(name) else StageDecorator(declare)

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
        """Declare an outside service, whose breaker and limits all workers share.

        *timeout* limits one call. *concurrency* and *rate* (`"60/min"`) limit all calls, over all workers. The
        *breaker* decides when calls are refused; *backup* is the provider that is called instead. *retry_budget* limits
        the retries for each first call: `0.2` is one in five. *key* returns the customer from a stage's arguments,
        `lambda a: a.customer`: customers take turns, and each has the limits *concurrency_per_key* and *rate_per_key*.
        A Retry-After of the provider is followed for at most 300 s, or *max_wait*.
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

    def queue(self, name: str, *, transport: Transport) -> None:
        """Have the jobs of a queue run by a fleet: the Celery or arq workers that *transport* dispatches them to.

        Holdfast's own workers dispatch these jobs, and do not run them.
        """
        self._registry.add_transport(ensure_name(name, "queue"), transport)

    def on_ticket(self, hook: HookT) -> HookT:
        """Call a function, plain or async, with each `Ticket`: at least once, by one of the workers.

        Used as a decorator. If it raises, or takes more than 5 s, it is called again after a minute, then each time
        after twice as long, up to 64 minutes.
        """
        if not callable(hook):
            raise ConfigError(f"on_ticket({hook!r}) is not a function; give one that takes a Ticket")
        self._hooks.append(hook)
        return hook
