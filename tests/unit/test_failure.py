"""What a failure is, and that nothing of it is lost in storage."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.failures.failure import (
    MEANINGS,
    ErrorClass,
    Failure,
    PublicCode,
    Scope,
    Sent,
    Verdict,
    deadline_passed,
    fingerprint_of,
    rolled_back,
    stage_mismatch,
    timed_out,
    worker_lost,
)

FAILURES = st.builds(
    Failure,
    error_class=st.sampled_from(ErrorClass),
    code=st.sampled_from(PublicCode),
    retryable=st.booleans(),
    message=st.text(),
    sent=st.sampled_from(Sent),
    scope=st.sampled_from(Scope),
    verdict=st.sampled_from(Verdict),
    wait=st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)),
    upstream_status=st.none() | st.integers(100, 599),
    retries=st.none() | st.integers(0, 9),
    stack=st.text(),
    fingerprint=st.text("0123456789abcdef", max_size=8),
    context=st.dictionaries(st.text(), st.none() | st.integers() | st.text()),
)


@pytest.mark.clause("FAIL-3", "mapping")
@pytest.mark.parametrize("error_class", ErrorClass)
def test_every_class_has_one_public_code_and_one_meaning(error_class: ErrorClass) -> None:
    failure = Failure.of(error_class, "scripted")

    assert failure.code in PublicCode
    assert failure.code is MEANINGS[error_class].code


@pytest.mark.clause("FAIL-3", "mapping")
def test_the_public_codes_are_the_ten_that_were_agreed() -> None:
    agreed = "NOT_PDF TOO_LARGE GW_4XX GW_5XX GW_TIMEOUT IO_ERROR NOT_READY EXPIRED FORBIDDEN UNKNOWN"

    assert [str(code) for code in PublicCode] == agreed.split()


@pytest.mark.parametrize("error_class", ErrorClass)
def test_only_a_failure_of_the_service_counts_against_its_breaker(error_class: ErrorClass) -> None:
    counted = {"CONNECT_FAILED", "NETWORK_TIMEOUT", "CONNECTION_LOST", "OVERLOADED", "UPSTREAM_5XX"}

    assert (MEANINGS[error_class].verdict is Verdict.FAIL) == (error_class.value in counted)


def test_too_many_requests_limit_a_provider_and_do_not_fail_it() -> None:
    assert MEANINGS[ErrorClass.RATE_LIMITED].verdict is Verdict.LIMIT


@given(FAILURES)
def test_a_stored_failure_comes_back_as_it_was(failure: Failure) -> None:
    stored = json.dumps(failure.to_dict())

    assert Failure.from_dict(json.loads(stored)) == failure


def test_a_failure_stored_by_a_newer_version_can_still_be_read() -> None:
    stored = worker_lost().to_dict() | {
        "error_class": "FROM_THE_FUTURE",
        "verdict": "maybe not",
        "mood": "grim",
    }

    failure = Failure.from_dict(stored)

    assert failure.error_class is ErrorClass.UNKNOWN
    assert failure.retryable


def test_a_failure_stored_with_less_has_its_classes_meaning() -> None:
    failure = Failure.from_dict({"error_class": "BAD_RESPONSE", "message": "no JSON"})

    assert failure == Failure.of(ErrorClass.BAD_RESPONSE, "no JSON")


def test_a_failure_of_which_nothing_was_stored_is_unknown_and_says_nothing() -> None:
    assert Failure.from_dict({}) == Failure.of(ErrorClass.UNKNOWN, "")


def test_a_summary_holds_no_stack_and_no_context() -> None:
    assert not {"stack", "context", "fingerprint"} & set(worker_lost().summary())


@pytest.mark.parametrize("context", [None, 7, ["place"]])
def test_a_context_that_is_none_reads_as_an_empty_one(context: object) -> None:
    assert Failure.from_dict(worker_lost().to_dict() | {"context": context}) == worker_lost()


@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_failure_without_an_exception_has_the_fingerprint_of_its_class(error_class: ErrorClass) -> None:
    assert Failure.of(error_class, "one").fingerprint == fingerprint_of(error_class)
    assert Failure.of(error_class, "one").fingerprint == Failure.of(error_class, "another").fingerprint


def test_every_job_and_every_stage_has_a_fingerprint_of_its_own() -> None:
    names = ("", "grade", "send")
    made = {
        fingerprint_of(ErrorClass.BUG, "shop", job=job, stage=stage) for job in names[1:] for stage in names
    }

    assert len(made | {fingerprint_of(ErrorClass.BUG, "shop")}) == 7


def test_every_class_and_every_place_has_a_fingerprint_of_its_own() -> None:
    made = {fingerprint_of(one, place) for one in ErrorClass for place in ("", "shop:grade", "shop:send")}

    assert len(made) == 3 * len(ErrorClass)
    assert {len(one) for one in made} == {8}


def test_a_failure_can_be_a_member_of_a_set() -> None:
    assert len({worker_lost(), worker_lost(), deadline_passed()}) == 2


def test_a_lost_worker_may_have_sent_and_is_tried_again() -> None:
    failure = worker_lost()

    assert (failure.error_class, failure.retryable, failure.sent) == (
        ErrorClass.WORKER_LOST,
        True,
        Sent.MAYBE,
    )


def test_a_stage_that_does_not_fit_is_final() -> None:
    failure = stage_mismatch("stage fetch changed")

    assert (failure.error_class, failure.retryable) == (ErrorClass.STAGE_MISMATCH, False)
    assert failure.message == "stage fetch changed"


def test_a_stage_that_ran_too_long_is_a_network_timeout() -> None:
    failure = timed_out(timedelta(seconds=1.5))

    assert (failure.error_class, failure.code) == (ErrorClass.NETWORK_TIMEOUT, PublicCode.GW_TIMEOUT)
    assert failure.message == "no result within 1.5 s"


def test_a_passed_deadline_is_final_and_shown_as_expired() -> None:
    failure = deadline_passed()

    assert (failure.error_class, failure.code) == (ErrorClass.TIMEOUT, PublicCode.EXPIRED)
    assert (failure.retryable, failure.sent) == (False, Sent.MAYBE)
    assert failure.message == "the deadline passed before the job was done"


def test_a_completion_that_was_rolled_back_is_retried_and_says_what_to_do() -> None:
    failure = rolled_back()

    assert (failure.error_class, failure.retryable) == (ErrorClass.CONFLICT, True)
    assert failure.message.endswith("commit it before the function returns")
