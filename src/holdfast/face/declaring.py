"""A provider's declaration, checked: a mistake is told when the application starts, and not after a call was made."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.core.breakers import Breaker
from holdfast.core.durations import Length, duration
from holdfast.core.errors import ConfigError
from holdfast.core.limits import Limits, Rate
from holdfast.core.providers import ProviderSpec

if TYPE_CHECKING:
    from holdfast.face.providers import Provider


def declaration(
    name: str,
    *,
    timeout: Length,
    concurrency: int | None,
    rate: str | None,
    breaker: Breaker,
    backup: "Provider | str | None",
    retry_budget: float | None,
    key: Callable[[Any], str] | None,
    concurrency_per_key: int | None,
    rate_per_key: str | None,
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
        name=name,
        timeout=_timeout(timeout),
        limits=_limits(concurrency, rate),
        breaker=breaker,
        backup=_backup(name, backup),
        key=key,
        key_limits=_limits(concurrency_per_key, rate_per_key),
        retry_budget=_part(retry_budget),
    )


def _timeout(length: Length) -> timedelta:
    try:
        timeout = duration(length)
    except ValueError as error:
        raise ConfigError(str(error)) from None
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
