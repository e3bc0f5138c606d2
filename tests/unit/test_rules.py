"""What one line of the table says, and how a user's own line is read."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.failures.failure import MEANINGS, ErrorClass, Failure, PublicCode, Scope, Sent, Verdict
from holdfast.core.failures.rules import TABLE, rule


@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_rule_that_only_names_a_class_means_what_the_class_means(error_class: ErrorClass) -> None:
    assert rule("shop.Error", error_class=error_class).as_failure() == Failure.of(error_class, "")


def test_a_rule_that_names_no_class_means_unknown() -> None:
    assert rule("shop.Error").as_failure() == Failure.of(ErrorClass.UNKNOWN, "")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("code", PublicCode.FORBIDDEN),
        ("retryable", False),
        ("sent", Sent.YES),
        ("scope", Scope.PROVIDER),
        ("verdict", Verdict.LIMIT),
        ("wait", timedelta(minutes=5)),
        ("retries", 0),
    ],
)
def test_a_rule_may_depart_from_its_class_in_each_respect(field: str, value: Any) -> None:
    lesson = rule("shop.Error", error_class=ErrorClass.CONFLICT, **{field: value})

    assert lesson.as_failure() == replace(Failure.of(ErrorClass.CONFLICT, ""), **{field: value})


@pytest.mark.parametrize(
    "subject", ["httpcore2._sync.http11.ReadTimeout", "httpcore2.ReadTimeout", "httpx.ReadTimeout"]
)
def test_a_class_is_known_by_its_full_name_by_its_package_and_by_its_kin(subject: str) -> None:
    error = type("ReadTimeout", (Exception,), {"__module__": "httpcore2._sync.http11"})()

    assert rule(subject).fits(error)
    assert not rule(subject).fits(TimeoutError())


def test_a_predicate_may_answer_with_anything_that_is_true_or_false() -> None:
    lesson = rule(lambda error: error.args)  # type: ignore[arg-type, return-value]  # that is the point

    assert lesson.fits(KeyError("x")) is True
    assert lesson.fits(KeyError()) is False


@pytest.mark.parametrize("subject", [7, None])
def test_a_rule_about_nothing_that_can_be_asked_is_refused(subject: Any) -> None:
    with pytest.raises(TypeError, match=f"class, its name or a predicate, not {subject}"):
        rule(subject)


def test_a_rule_about_a_class_that_is_no_exception_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match="int is not one"):
        rule(int)  # type: ignore[arg-type]  # that is the point


def test_a_wait_may_be_written_as_people_write_it() -> None:
    assert rule("shop.Error", wait="1m30s").wait == timedelta(seconds=90)


def departures(signal: str) -> dict[str, object]:
    """In what a line of the table says something else than its class does."""
    failure, meaning = TABLE[signal].as_failure(), MEANINGS[TABLE[signal].error_class]
    fields = ("code", "retryable", "sent", "scope", "verdict", "retries")
    return {
        field: getattr(failure, field)
        for field in fields
        if getattr(failure, field) != getattr(meaning, field)
    }


DEPARTING = [
    ("smtp 450, smtp 451, smtp 452, smtp 4xx", {"scope": Scope.JOB, "verdict": Verdict.IGNORE}),
    ("pypdfium2.PdfiumError, pdfminer.PDFSyntaxError", {"code": PublicCode.NOT_PDF}),
    ("holdfast.KeyReused, holdfast.VersionRefused", {"retryable": False}),
    ("holdfast.StateRefused, holdfast.JobCancelled, holdfast.ArchiveDamaged", {"retryable": False}),
    ("holdfast.ResultTimeout", {"verdict": Verdict.IGNORE}),
    (
        "holdfast.ConfigError, holdfast.WithinUnsupported, holdfast.SchemaError, holdfast.RouteRefused",
        {"scope": Scope.NONE},
    ),
    ("asyncpg.ClientConfigurationError, sqlstate 28, sqlstate 3D, sqlstate 3F", {"scope": Scope.NONE}),
]


def test_one_mailbox_a_wrong_file_and_what_is_our_own_affair_depart_from_their_class_and_nothing_else() -> (
    None
):
    departing = {signal: how for signals, how in DEPARTING for signal in signals.split(", ")}

    assert {signal: how for signal in TABLE if (how := departures(signal))} == departing


def test_only_an_exception_that_its_library_makes_from_another_leaves_the_word_to_that() -> None:
    wrapping = {signal for signal, line in TABLE.items() if line.wraps}

    assert wrapping == {
        "urllib.URLError",
        "openai.APITimeoutError",
        "openai.APIConnectionError",
        "anthropic.APITimeoutError",
        "anthropic.APIConnectionError",
        "requests.ConnectionError",
        "requests.SSLError",
        "urllib3.MaxRetryError",
        "urllib3.SSLError",
    }
