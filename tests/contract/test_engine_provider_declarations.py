"""A provider is declared once, with options that make sense."""

import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "fast"}, "Not a rate"),
        ({"rate": "0/s"}, "Not a rate"),
        ({"concurrency": 0}, "lets no call through"),
        ({"retry_budget": 2.0}, "retry_budget=2.0 must be a fraction"),
        ({"timeout": "soon"}, "soon"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"rate": 60}, "rate must be text such as '60/min', not 60"),
        ({"rate": "60/10"}, "Not a rate: '60/10'"),
        ({"concurrency": "8"}, "a whole number, such as 8, not '8'"),
        ({"concurrency": True}, "a whole number, such as 8, not True"),
        ({"retry_budget": "0.2"}, "retry_budget='0.2' must be a fraction"),
        ({"breaker": {"window": 5}}, "breaker= takes a Breaker, .* and not a dict"),
        ({"breaker": False}, "breaker= takes a Breaker, .* and not a bool"),
        ({"backup": 5}, "backup= takes a provider or its name, and not 5"),
        ({"backup": "llm"}, "'llm' cannot be its own backup"),
        ({"key": "customer"}, "key= takes a function"),
        ({"concurrency_per_key": 2}, "need key="),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(sorted(value.items())),
)
def test_a_declaration_that_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    hold = Holdfast("sqlite:///never-opened.db")

    with pytest.raises(ConfigError, match=message):
        hold.provider("llm", **options)  # type: ignore[arg-type]  # that is what it is about


def test_a_provider_is_declared_once() -> None:
    hold = Holdfast("sqlite:///never-opened.db")
    hold.provider("llm")

    with pytest.raises(ConfigError, match="declared twice"):
        hold.provider("llm")


def test_a_stage_with_the_name_of_a_provider_is_refused_with_what_to_give() -> None:
    hold = Holdfast("sqlite:///never-opened.db")
    hold.provider("llm")

    with pytest.raises(ConfigError, match="provider='llm' is not a provider; give what"):
        hold.stage(provider="llm")  # type: ignore[call-overload]  # that is what it is about
