"""Jobs, stages and providers as they are declared: a mistake is told when the application starts, and not later."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, get_args, overload

from holdfast.core.dead_letters.replay_plan import AutoReplay
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError, PayloadInvalid
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.failures.escalation import Table, table
from holdfast.core.jobs.schedules import Missed, Schedule, Ticks
from holdfast.core.names import ensure_name
from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.limits import Limits, Rate
from holdfast.core.providers.provider import ProviderSpec
from holdfast.engine.registry import JobSpec, OnDeadline, Registry, StageSpec
from holdfast.engine.signature import Signature
from holdfast.face.jobs import JobFunction, checked_deadline
from holdfast.face.stages import StageFunction

if TYPE_CHECKING:
    from holdfast.face.providers import Provider

P = ParamSpec("P")
R = TypeVar("R")


class JobDecorator:
    """What `@hold.job(...)` stands for: it keeps the types of the function below it."""

    def __init__(self, declare: Callable[[Callable[..., Any]], JobFunction[..., Any]]) -> None:
        self._declare = declare

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> JobFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> JobFunction[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> JobFunction[..., Any]:
        return self._declare(function)


class StageDecorator:
    """What `@hold.stage(...)` stands for."""

    def __init__(self, declare: Callable[[Callable[..., Any]], StageFunction[..., Any]]) -> None:
        self._declare = declare

    def __call__(self, function: Callable[P, R]) -> StageFunction[P, R]:
        return cast("StageFunction[P, R]", self._declare(function))


class ScheduleDecorator:
    """The result of `hold.every(...)` and `hold.cron(...)`: it registers the schedule of the decorated job."""

    def __init__(
        self, registry: Registry, description: str, ticks: Ticks, name: str | None, missed: Missed
    ) -> None:
        if missed not in get_args(Missed):
            raise ConfigError(f"missed={missed!r} must be 'latest', 'all' or 'skip'")
        self._registry = registry
        self._description = description
        self._ticks = ticks
        self._name = name
        self._missed = missed

    def __call__(self, job: JobFunction[[], R]) -> JobFunction[[], R]:
        if not isinstance(job, JobFunction):
            raise ConfigError(
                f"{self._description} decorates something that is not a job; put it above @hold.job(...)"
            )
        job.spec.signature.dump_args((), {})  # raises if it cannot be called without arguments
        name = ensure_name(self._name or job.name, "schedule")
        self._registry.recur(job.spec, Schedule(name, self._description, self._ticks, self._missed))
        return job


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
    """Read a length of time."""
    try:
        return duration(length)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def policy_of(
    usual: RetryPolicy, attempts: int | None, backoff: Backoff | None, max_wait: Duration | None
) -> RetryPolicy:
    """Put a policy for retries together; what is not given is as *usual*."""
    try:
        return RetryPolicy(
            usual.attempts if attempts is None else attempts,
            usual.backoff if backoff is None else backoff,
            usual.max_wait if max_wait is None else duration(max_wait),
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
    max_failed_runs: int | None,
    queue: str,
    priority: int,
    aliases: Sequence[str],
) -> JobSpec:
    """Put a job together. Raises `ConfigError`, which says what to write instead."""
    known = ensure_name(name or function.__name__, "job")
    if on_deadline not in get_args(OnDeadline):
        raise ConfigError(f"on_deadline={on_deadline!r} is not usable: it is 'cancel' or 'finish'")
    if max_failed_runs is not None and max_failed_runs < 1:
        raise ConfigError(f"max_failed_runs={max_failed_runs} lets no run fail; it is 1 or more")
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
        max_failed_runs=max_failed_runs,
        is_async=inspect.iscoroutinefunction(function),
    )
    for stage in _stages_named_in(function):
        spec.saw_stage(stage.spec)
    return spec


def _deadline(length: Duration | None) -> timedelta | None:
    try:
        return checked_deadline(length)
    except (PayloadInvalid, ValueError) as error:
        raise ConfigError(str(error)) from None


def _exhaustion(given: Mapping[str, str | Iterable[str]] | None) -> Table:
    try:
        return table(given)
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"on_exhausted={given!r} is not usable: {error}") from None


def _auto_replay(given: AutoReplay | None) -> AutoReplay | None:
    if given is not None and not isinstance(given, AutoReplay):
        raise ConfigError(f"auto_replay={given!r} is not usable; give AutoReplay(safe=…)")
    return given


def _stages_named_in(function: Callable[..., Any]) -> list[StageFunction[..., Any]]:
    """Find the stages that a job's function names: their budgets bound its crashes."""
    plain = getattr(function, "__func__", function)
    names = getattr(getattr(plain, "__code__", None), "co_names", ())
    found = [plain.__globals__.get(name) for name in names]
    for cell in getattr(plain, "__closure__", None) or ():
        with suppress(ValueError):  # a name that is given to something later, perhaps to this job
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
    """Put a stage together. Raises `ConfigError`."""
    known = ensure_name(name or function.__name__, "stage")
    if known.startswith("@"):
        raise ConfigError(f"{known!r} cannot name a stage; names that begin with '@' are for waits")
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
    """Put a provider together. Raises `ConfigError`, which says what to write instead."""
    if not isinstance(breaker, Breaker):
        raise ConfigError(
            f"breaker= takes a Breaker, such as Breaker(cooldown='2m'), and not a {type(breaker).__name__}"
        )
    if key is not None and not callable(key):
        raise ConfigError("key= takes a function of a stage's arguments, such as lambda a: a.customer")
    if key is None and (concurrency_per_key is not None or rate_per_key is not None):
        raise ConfigError("concurrency_per_key= and rate_per_key= need key=, which tells customers apart")
    return ProviderSpec(
        name=ensure_name(name, "provider"),
        timeout=_timeout(timeout),
        limits=_limits(concurrency, rate),
        breaker=_patient(breaker, max_wait),
        backup=_backup(name, backup),
        key=key,
        key_limits=_limits(concurrency_per_key, rate_per_key),
        retry_budget=_part(retry_budget),
    )


def _patient(breaker: Breaker, max_wait: Duration | None) -> Breaker:
    try:
        return breaker if max_wait is None else replace(breaker, max_wait=duration(max_wait))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _timeout(length: Duration) -> timedelta:
    timeout = length_of(length)
    if timeout <= timedelta(0):
        raise ConfigError("a timeout of nothing lets no call through; give it a length, such as 60 or '60s'")
    return timeout


def _limits(concurrency: int | None, rate: str | None) -> Limits:
    if concurrency is not None and type(concurrency) is not int:
        raise ConfigError(f"a concurrency is a whole number, such as 8, and not {concurrency!r}")
    if rate is not None and not isinstance(rate, str):
        raise ConfigError(f"a rate is text such as '60/min', and not {rate!r}")
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


def _part(budget: float | None) -> float | None:
    if budget is not None and not (isinstance(budget, int | float) and 0 < budget <= 1):
        raise ConfigError(f"retry_budget={budget!r} is not usable: it is a part of the first calls, up to 1")
    return budget
