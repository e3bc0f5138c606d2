"""A provider as declared, and what the outcome of a call says about it."""

from dataclasses import replace

import pytest

from holdfast.core.failures.failure import ErrorClass, Failure, Scope, Verdict
from holdfast.core.providers.breaker_state import BreakerState, OpenCause, OpenPeriod, Ramp, overridden
from holdfast.core.providers.call_reports import CallOutcome
from holdfast.core.providers.limits import Limits, Rate
from holdfast.core.providers.override import Override, OverrideKind
from holdfast.core.providers.provider import ProviderSpec, checked_key, hold_reason, outcome_of
from tests.builders import a_failure

NOW = 1_000.0


LLM = ProviderSpec("llm")


OPEN = BreakerState(open_period=OpenPeriod(OpenCause.FAILURES, NOW, NOW + 30, failed=11, seen=20))


def under(kind: OverrideKind, reason: str = "") -> BreakerState:
    return overridden(BreakerState(), Override(kind, "alice", reason, NOW), NOW)


def test_places_are_counted_where_calls_at_a_time_are_limited() -> None:
    one, rate = Limits(concurrency=1), Limits(rate=Rate.of("1/s"))
    specs = [LLM, replace(LLM, limits=rate), replace(LLM, limits=one), replace(LLM, key_limits=one)]

    assert [spec.limits_concurrency for spec in specs] == [False, False, True, True]


def test_a_call_may_have_to_wait_where_anything_is_limited() -> None:
    one = Limits(concurrency=1)
    limited = [replace(LLM, limits=one), replace(LLM, key_limits=one), replace(LLM, retry_budget=0.0)]

    assert not LLM.limited
    assert all(spec.limited for spec in limited)


COUNTED = {"CONNECT_FAILED", "NETWORK_TIMEOUT", "CONNECTION_LOST", "OVERLOADED", "UPSTREAM_5XX"}


SPECIAL = {
    "RATE_LIMITED": CallOutcome.LIMITED,
    "QUOTA_EXHAUSTED": CallOutcome.EXHAUSTED,
    "AUTH_DENIED": CallOutcome.DENIED,
    "MISCONFIGURED": CallOutcome.DENIED,
}


@pytest.mark.clause("BRK-1")
@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_what_a_failure_says_about_its_provider_follows_from_its_class(error_class: ErrorClass) -> None:
    default = CallOutcome.FAILURE if error_class.value in COUNTED else CallOutcome.IGNORED

    assert outcome_of(a_failure(error_class)) is SPECIAL.get(error_class.value, default)


@pytest.mark.parametrize("error_class", ["AUTH_DENIED", "QUOTA_EXHAUSTED", "MISCONFIGURED"])
def test_a_refusal_that_is_the_jobs_own_says_nothing_about_the_provider(error_class: str) -> None:
    failure = replace(a_failure(ErrorClass(error_class)), scope=Scope.JOB)

    assert outcome_of(failure) is CallOutcome.IGNORED


def test_a_rule_can_say_that_a_failure_counts_or_does_not() -> None:
    timeout: Failure = a_failure(ErrorClass.NETWORK_TIMEOUT)
    garbage: Failure = a_failure(ErrorClass.BAD_RESPONSE)

    assert outcome_of(replace(timeout, verdict=Verdict.IGNORE)) is CallOutcome.IGNORED
    assert outcome_of(replace(garbage, verdict=Verdict.FAIL)) is CallOutcome.FAILURE


@pytest.mark.parametrize(
    ("breaker", "reason"),
    [
        (OPEN, "llm is open: 11 of 20 calls failed"),
        (replace(OPEN, open_period=OpenPeriod(OpenCause.FAILURES, NOW, NOW)), "llm is half-open"),
        (
            replace(OPEN, open_period=OpenPeriod(OpenCause.LIMITED, NOW, NOW + 8, failed=1, seen=2)),
            "llm is limited",
        ),
        (replace(OPEN, open_period=OpenPeriod(OpenCause.BLOCKED, NOW, NOW + 300)), "llm is blocked"),
        (BreakerState(ramp=Ramp(NOW, 3)), "llm is recovering, and held jobs go first"),
        (under(OverrideKind.PAUSE), "llm is paused by alice"),
        (under(OverrideKind.OPEN, "invoice unpaid"), "llm is forced open by alice: invoice unpaid"),
    ],
)
def test_a_held_job_says_what_it_waits_for(breaker: BreakerState, reason: str) -> None:
    assert hold_reason("llm", breaker, NOW) == reason


@pytest.mark.parametrize(
    "key", ["", "customer-7", "Zoë", "x" * 200], ids=["none", "plain", "letters", "long"]
)
def test_a_key_is_printable_text(key: str) -> None:
    assert checked_key(key) == key


@pytest.mark.parametrize("key", ["a\nb", "\x00", "x" * 201], ids=["two lines", "NUL", "too long"])
def test_a_key_that_cannot_be_stored_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="Not a key"):
        checked_key(key)


def test_a_customer_that_is_a_number_has_a_key_and_one_that_is_none_has_not() -> None:
    assert checked_key(7) == "7"
    with pytest.raises(ValueError, match="Not a key: None"):
        checked_key(None)
