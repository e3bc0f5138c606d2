"""Checks declarations of jobs, stages, providers, schedules and messages: a mistake raises when the application starts."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, get_args, overload

from holdfast.app.job_function import JobFunction, checked_deadline
from holdfast.app.stage_function import StageFunction
from holdfast.core.dead_letters.replay_plan import AutoReplay
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError, PayloadInvalid, SubmitError
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.failures.escalation import EscalationTable, escalation_table
from holdfast.core.jobs.schedules import Missed, Schedule, Ticks
from holdfast.core.messages.announcements import AnnouncementKind, Render
from holdfast.core.names import ensure_name
from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.limits import Limits, Rate
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.strict_json import DEFAULT_LIMIT
from holdfast.engine.registry import JobSpec, OnDeadline, Registry, StageSpec
from holdfast.engine.signature import Signature

if TYPE_CHECKING:
    from holdfast.app.provider import Provider

P = ParamSpec("P")
R = TypeVar("R")


class JobDecorator:
    """The result of `hold.job(...)`: it decorates a function and keeps its types."""

    def __init__(self, declare: Callable[[Callable[..., Any]], JobFunction[..., Any]]) -> None:
        self._declare = declare

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> JobFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> JobFunction[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> JobFunction[..., Any]:
        return self._declare(function)


class StageDecorator:
    """The result of `hold.stage(...)`: it decorates a function and keeps its types."""

    def __init__(self, declare: Callable[[Callable[..., Any]], StageFunction[..., Any]]) -> None:
        self._declare = declare

    def __call__(self, function: Callable[P, R]) -> StageFunction[P, R]:
        return cast("StageFunction[P, R]", self._declare(function))


class ScheduleDecorator:
    """The result of `hold.every(...)` and `hold.cron(...)`: it registers the schedule of the decorated job."""

    def __init__(
        self,
        registry: Registry,
        description: str,
        ticks: Ticks,
        *,
        name: str | None,
        missed: Missed,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
    ) -> None:
        if missed not in get_args(Missed):
            raise ConfigError(f"missed={missed!r} must be 'latest', 'all' or 'skip'")
        if not isinstance(args, list | tuple):
            raise ConfigError(f"args={args!r} must be a tuple; write (argument,) for a single one")
        self._registry = registry
        self._description = description
        self._ticks = ticks
        self._name = name
        self._missed = missed
        self._args, self._kwargs = tuple(args), dict(kwargs or {})

    def __call__(self, job: JobFunction[[], R]) -> JobFunction[[], R]:
        return self._declare(job)

    def _declare(self, job: JobFunction[P, R]) -> JobFunction[P, R]:
        if not isinstance(job, JobFunction):
            raise ConfigError(
                f"{self._description} decorates something that is not a job; put it above @hold.job(...)"
            )
        try:
            args = job.spec.signature.dump_args(self._args, self._kwargs)
        except SubmitError as error:
            raise ConfigError(
                f"{self._description} cannot submit {error}; give what the function takes as args= and kwargs="
            ) from None
        name = ensure_name(self._name or job.name, "schedule")
        self._registry.recur(job.spec, Schedule(name, self._description, self._ticks, self._missed), args)
        return job


class ScheduleWithArguments(ScheduleDecorator):
    """The same, for a schedule with arguments: it decorates a job of any signature."""

    def __call__(self, job: JobFunction[P, R]) -> JobFunction[P, R]:
        return self._declare(job)


def ensure_declared(provider: "Provider", registry: Registry) -> None:
    """Raise `ConfigError` unless *provider* was declared with the Holdfast of *registry*."""
    spec = getattr(provider, "spec", None)
    if not isinstance(spec, ProviderSpec):
        raise ConfigError(
            f"provider={provider!r} is not a provider; give what hold.provider({provider!r}) returned"
        )
    if registry.providers.get(spec.name) is not spec:
        raise ConfigError(
            f"provider {spec.name!r} was declared with another Holdfast; declare it with this one"
        )


def length_of(length: Duration) -> timedelta:
    """Parse a duration. Raises `ConfigError`."""
    try:
        return duration(length)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def policy_of(
    default: RetryPolicy, attempts: int | None, backoff: Backoff | None, max_wait: Duration | None
) -> RetryPolicy:
    """Build a retry policy; what is not given is taken from *default*. Raises `ConfigError`."""
    try:
        return RetryPolicy(
            default.attempts if attempts is None else attempts,
            default.backoff if backoff is None else backoff,
            default.max_wait if max_wait is None else duration(max_wait),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


def job_spec(
    function: Callable[..., Any],
    *,
    name: str | None,
    policy: RetryPolicy,
    timeout: Duration | None,
    deadline: Duration | None,
    on_deadline: OnDeadline,
    on_exhausted: Mapping[str, str | Iterable[str]] | None,
    auto_replay: AutoReplay | None,
    announce: Mapping[str, Render] | None,
    max_failed_runs: int | None,
    queue: str,
    priority: int,
    aliases: Sequence[str],
) -> JobSpec:
    """Build the specification of a job. Raises `ConfigError`, which says what is expected."""
    known = ensure_name(name or function.__name__, "job")
    if on_deadline not in get_args(OnDeadline):
        raise ConfigError(f"on_deadline={on_deadline!r} must be 'cancel' or 'finish'")
    if max_failed_runs is not None and max_failed_runs < 1:
        raise ConfigError(f"max_failed_runs={max_failed_runs} must be at least 1")
    spec = JobSpec(
        name=known,
        function=function,
        signature=Signature(function, what=f"job {known!r}"),
        policy=policy,
        queue=ensure_name(queue, "queue"),
        priority=priority,
        timeout=None if timeout is None else length_of(timeout),
        aliases=tuple(ensure_name(alias, "job") for alias in aliases),
        deadline=_deadline(deadline),
        on_deadline=on_deadline,
        exhaustion=_exhaustion(on_exhausted),
        auto_replay=_auto_replay(auto_replay),
        announce=_announce(known, announce),
        max_failed_runs=max_failed_runs,
        is_async=inspect.iscoroutinefunction(function),
    )
    for stage in _stages_named_in(function):
        spec.saw_stage(stage.spec)
    return spec


def internal_job_spec(
    function: Callable[..., Any], *, name: str, policy: RetryPolicy, limit: int = DEFAULT_LIMIT
) -> JobSpec:
    """Build the specification of a job of Holdfast itself. The store writes its calls, in the default queue."""
    return JobSpec(
        name=name,
        function=function,
        signature=Signature(function, what=f"job {name!r}", limit=limit),
        policy=policy,
        queue="default",
        priority=0,
        is_async=inspect.iscoroutinefunction(function),
    )


def _deadline(length: Duration | None) -> timedelta | None:
    try:
        return checked_deadline(length)
    except (PayloadInvalid, ValueError) as error:
        raise ConfigError(str(error)) from None


def _exhaustion(given: Mapping[str, str | Iterable[str]] | None) -> EscalationTable:
    try:
        return escalation_table(given)
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"on_exhausted={given!r} is invalid: {error}") from None


def _announce(job: str, given: Mapping[str, Render] | None) -> dict[AnnouncementKind, Render]:
    """Check the functions that render announcements, by their kind."""
    found: dict[AnnouncementKind, Render] = {}
    for kind, render in (given or {}).items():
        if kind not in list(AnnouncementKind):
            raise ConfigError(
                f"announce= of job {job!r} has {kind!r}; it takes {', '.join(AnnouncementKind)}"
            )
        if not callable(render) or inspect.iscoroutinefunction(render):
            raise ConfigError(
                f"announce= of job {job!r} needs a plain function for {kind!r}, which takes an Announcement and returns "
                "a message, a list of messages, or None"
            )
        found[AnnouncementKind(kind)] = render
    return found


def _auto_replay(given: AutoReplay | None) -> AutoReplay | None:
    if given is not None and not isinstance(given, AutoReplay):
        raise ConfigError(f"auto_replay={given!r} must be an AutoReplay: AutoReplay(safe=…)")
    return given


def _stages_named_in(function: Callable[..., Any]) -> list[StageFunction[..., Any]]:
    """Find the stages that a job's function names: their attempts limit how often the job may crash a worker."""
    plain = getattr(function, "__func__", function)
    names = getattr(getattr(plain, "__code__", None), "co_names", ())
    found = [plain.__globals__.get(name) for name in names]
    for cell in getattr(plain, "__closure__", None) or ():
        with suppress(ValueError):  # a name that is assigned later, perhaps to this job
            found.append(cell.cell_contents)
    return [value for value in found if isinstance(value, StageFunction)]


def stage_spec(
    function: Callable[..., Any],
    *,
    name: str | None,
    policy: RetryPolicy,
    timeout: Duration | None,
    provider: "Provider | None",
) -> StageSpec:
    """Build the specification of a stage. Raises `ConfigError`."""
    known = ensure_name(name or function.__name__, "stage")
    if known.startswith("@"):
        raise ConfigError(f"{known!r} cannot name a stage; names that begin with '@' are reserved for waits")
    return StageSpec(
        name=known,
        function=function,
        signature=Signature(function, what=f"stage {known!r}"),
        policy=policy,
        is_async=inspect.iscoroutinefunction(function),
        timeout=None if timeout is None else length_of(timeout),
        provider=None if provider is None else provider.spec,
    )


def provider_spec(
    name: str,
    *,
    timeout: Duration,
    concurrency: int | None,
    rate: str | None,
    breaker: Breaker,
    backup: "Provider | str | None",
    retry_budget: float | None,
    key: Callable[[Any], str] | None,
    concurrency_per_key: int | None,
    rate_per_key: str | None,
    max_wait: Duration | None,
) -> ProviderSpec:
    """Build the specification of a provider. Raises `ConfigError`, which says what is expected."""
    if not isinstance(breaker, Breaker):
        raise ConfigError(
            f"breaker= takes a Breaker, such as Breaker(cooldown='2m'), and not a {type(breaker).__name__}"
        )
    if key is not None and not callable(key):
        raise ConfigError("key= takes a function of a stage's arguments, such as lambda a: a.customer")
    if key is None and (concurrency_per_key is not None or rate_per_key is not None):
        raise ConfigError("concurrency_per_key= and rate_per_key= need key=, which identifies the customer")
    return ProviderSpec(
        name=ensure_name(name, "provider"),
        timeout=_timeout(timeout),
        limits=_limits(concurrency, rate),
        breaker=_with_max_wait(breaker, max_wait),
        backup=_backup(name, backup),
        key=key,
        key_limits=_limits(concurrency_per_key, rate_per_key),
        retry_budget=_fraction(retry_budget),
    )


def _with_max_wait(breaker: Breaker, max_wait: Duration | None) -> Breaker:
    try:
        return breaker if max_wait is None else replace(breaker, max_wait=duration(max_wait))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _timeout(length: Duration) -> timedelta:
    timeout = length_of(length)
    if timeout <= timedelta(0):
        raise ConfigError("timeout must be positive, such as 60 or '60s'")
    return timeout


def _limits(concurrency: int | None, rate: str | None) -> Limits:
    if concurrency is not None and type(concurrency) is not int:
        raise ConfigError(f"concurrency must be a whole number, such as 8, not {concurrency!r}")
    if rate is not None and not isinstance(rate, str):
        raise ConfigError(f"rate must be text such as '60/min', not {rate!r}")
    try:
        return Limits(concurrency, None if rate is None else Rate.of(rate))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _backup(name: str, backup: "Provider | str | None") -> str | None:
    called = getattr(backup, "name", backup)
    if called is not None and not isinstance(called, str):
        raise ConfigError(f"backup= takes a provider or its name, and not {backup!r}")
    if called == name:
        raise ConfigError(f"provider {name!r} cannot be its own backup; name another one")
    return called


def _fraction(budget: float | None) -> float | None:
    if budget is not None and not (isinstance(budget, int | float) and 0 < budget <= 1):
        raise ConfigError(
            f"retry_budget={budget!r} must be a fraction of the first calls, above 0 and up to 1"
        )
    return budget
