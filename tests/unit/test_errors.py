"""The library's own exceptions: one tree, and each says what to do."""

import inspect
import pickle
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core import errors
from holdfast.core.errors import (
    BadResponse,
    BrokerError,
    HoldfastError,
    JobFailed,
    MediaInvalid,
    Permanent,
    PolicyRejected,
    ResultTimeout,
    Retryable,
    SignalTimeout,
    StageFailed,
    SubmitError,
)
from holdfast.core.failures.classifier import Classifier
from holdfast.core.failures.failure import ErrorClass, PublicCode, worker_lost

EVERY_ERROR = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HoldfastError)
]
RETRYABLE = {
    "Retryable",
    "BadResponse",
    "ResultTimeout",
    "StoreUnavailable",
    "StoreReadOnly",
    "ArchiveUnavailable",
    "BrokerUnavailable",
    "RouteFull",
}

ABSTRACT = {
    HoldfastError,
    SubmitError,
    StageFailed,
    BrokerError,
}  # of the last, the stage's own failure decides


def an_error(kind: type[HoldfastError]) -> HoldfastError:
    if kind is JobFailed:
        return JobFailed(worker_lost())
    if kind is StageFailed:
        return StageFailed("fetch", worker_lost())
    return kind("scripted")


def drawn_tree() -> dict[str, str]:
    """Read the drawing at the top of the module: each name with its parent."""
    parents, branch = {}, {-1: "HoldfastError"}
    for line in (errors.__doc__ or "").splitlines():
        if "+-- " in line:
            depth, name = line.index("+"), line.split("+-- ")[1].split()[0]
            parents[name] = branch[max(above for above in branch if above < depth)]
            branch = {above: drawn for above, drawn in branch.items() if above < depth} | {depth: name}
    return parents


def test_the_tree_is_drawn_as_it_is() -> None:
    real = {kind.__name__: kind.__mro__[1].__name__ for kind in EVERY_ERROR if kind is not HoldfastError}

    assert drawn_tree() == real


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_every_error_explains_itself(kind: type[HoldfastError]) -> None:
    assert inspect.getdoc(kind) != inspect.getdoc(kind.__mro__[1])


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_every_error_survives_the_transfer_between_two_processes(kind: type[HoldfastError]) -> None:
    error = an_error(kind)

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is kind
    assert str(again) == str(error)


@pytest.mark.clause("FAIL-2")
@pytest.mark.parametrize("kind", [kind for kind in EVERY_ERROR if kind not in ABSTRACT])
def test_only_errors_that_pass_by_themselves_are_retried(kind: type[HoldfastError]) -> None:
    failure = Classifier().classify(an_error(kind))

    assert failure.retryable == (kind.__name__ in RETRYABLE)


def test_a_handler_says_when_to_try_again() -> None:
    failure = Classifier().classify(
        Retryable("index is being rebuilt", error_class=ErrorClass.CONFLICT, after=30)
    )

    assert failure.retryable
    assert failure.error_class is ErrorClass.CONFLICT
    assert failure.wait == timedelta(seconds=30)
    assert failure.message == "index is being rebuilt"


@pytest.mark.parametrize("after", [None, 0, "0s", timedelta(0)])
def test_a_wait_of_nothing_counts_as_none(after: Any) -> None:
    assert Retryable("later", after=after).wait is None


@pytest.mark.parametrize("after", [10, 10.0, "10s", "10000ms", timedelta(seconds=10)])
def test_a_wait_is_written_as_any_length_of_time(after: Any) -> None:
    assert Retryable("later", after=after).wait == timedelta(seconds=10)


@pytest.mark.parametrize("after", [-5, float("nan"), float("inf"), "soon", "10", True, [10]])
def test_a_wait_that_cannot_be_read_is_refused_where_it_is_written(after: Any) -> None:
    with pytest.raises(ValueError, match=r"[Dd]uration"):
        Retryable("later", after=after)


def test_a_handler_says_that_nothing_will_help() -> None:
    error = Permanent("no such course", error_class=ErrorClass.NOT_FOUND, code=PublicCode.FORBIDDEN)

    failure = Classifier().classify(error)

    assert not failure.retryable
    assert (failure.error_class, failure.code) == (ErrorClass.NOT_FOUND, PublicCode.FORBIDDEN)


@pytest.mark.parametrize("kind", [Retryable, Permanent])
def test_a_handler_need_not_say_more_than_the_kind(kind: type[Retryable | Permanent]) -> None:
    said = kind().as_failure()

    assert str(kind()) == ""
    assert Classifier().classify(kind()).message == kind.__name__
    assert (said.error_class, said.code, said.message) == (ErrorClass.UNKNOWN, PublicCode.UNKNOWN, "")


@pytest.mark.parametrize("kind", [Retryable, Permanent])
def test_what_a_handler_says_is_reported_in_its_own_words(kind: type[Retryable | Permanent]) -> None:
    assert Classifier().classify(kind("no such course")).message == "no such course"


def test_a_failure_that_a_handler_calls_retryable_is_retried_whatever_its_class_means() -> None:
    assert Retryable("the key is being rotated", error_class=ErrorClass.AUTH_DENIED).as_failure().retryable


def test_a_permanent_failure_without_a_code_has_that_of_its_class() -> None:
    assert Permanent("too big", error_class=ErrorClass.TOO_LARGE).as_failure().code is PublicCode.TOO_LARGE


def test_a_permanent_failure_stays_one_whatever_its_class_means() -> None:
    failure = Classifier().classify(Permanent("give up", error_class=ErrorClass.RATE_LIMITED))

    assert not failure.retryable


@pytest.mark.clause("FAIL-2")
def test_a_bad_answer_is_retried_twice() -> None:
    failure = Classifier().classify(BadResponse("the answer is no JSON"))

    assert (failure.error_class, failure.retryable, failure.retries) == (ErrorClass.BAD_RESPONSE, True, 2)


@pytest.mark.clause("FAIL-2")
def test_undecodable_media_and_rejected_content_are_final() -> None:
    classifier = Classifier()

    media = classifier.classify(MediaInvalid("not a PDF", code=PublicCode.NOT_PDF))
    policy = classifier.classify(PolicyRejected("moderation said no"))

    assert (media.error_class, media.code, media.retryable) == (
        ErrorClass.MEDIA_INVALID,
        PublicCode.NOT_PDF,
        False,
    )
    assert (policy.error_class, policy.retryable) == (ErrorClass.POLICY_REJECTED, False)


def test_a_result_timeout_is_an_ordinary_timeout_to_its_catcher() -> None:
    with pytest.raises(TimeoutError):
        raise ResultTimeout("no result within 60 s")


def test_a_signal_that_did_not_come_in_time_is_final_and_says_that_the_time_is_over() -> None:
    error = SignalTimeout("no signal 'approved' came within 7 days")

    failure = Classifier().classify(error)

    assert isinstance(error, TimeoutError)
    assert (failure.error_class, failure.code) == (ErrorClass.TIMEOUT, PublicCode.EXPIRED)
    assert not failure.retryable


def test_a_failed_job_says_why() -> None:
    error = JobFailed(worker_lost())

    assert str(error) == "the job failed with WORKER_LOST: the worker was lost during the attempt"
    assert error.failure == worker_lost()
    assert error.args == (worker_lost(),)


def test_a_failed_stage_says_which_and_why() -> None:
    error = StageFailed("fetch", worker_lost())

    assert str(error) == "stage 'fetch' failed with WORKER_LOST: the worker was lost during the attempt"
    assert (error.stage, error.failure) == error.args == ("fetch", worker_lost())
