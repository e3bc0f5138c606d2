"""How an exception becomes a failure, whatever it is made of."""

import asyncio
import errno
import json
import linecache
import sqlite3
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from holdfast.core.errors import JobFailed, Permanent, ResultTimeout, Retryable, StageFailed
from holdfast.core.failures.classifier import Classifier
from holdfast.core.failures.failure import (
    ErrorClass,
    Failure,
    PublicCode,
    Scope,
    Sent,
    Verdict,
    fingerprint_of,
)
from holdfast.core.failures.rules import RULES, TABLE, Rule, rule
from holdfast.core.redaction import Redactor
from tests.unit.secrets_corpus import CORPUS, Secret

SECRET = "sk-very-secret"


class ShopError(Exception):
    """An exception of an application."""


class OutOfStockError(ShopError):
    """A more specific one."""


class Answer:
    """What a client library would hang on its exception."""

    def __init__(self, status_code: int, headers: dict[str, str] | None = None, content: bytes = b"") -> None:
        self.status_code = status_code
        self.headers = headers or {}
        self._content = content


class ServiceError(Exception):
    """An exception of a client library that is not known."""

    def __init__(self, response: object) -> None:
        super().__init__("the service said no")
        self.response = response


def classify(error: BaseException, *rules: Rule) -> Failure:
    return Classifier(*rules, read_source=linecache.getlines).classify(error)


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def during(error: Exception, context: BaseException) -> Exception:
    error.__context__ = context
    return error


def masked(text: str) -> str:
    return text.replace(SECRET, "***")


@pytest.mark.clause("FAIL-1")
@pytest.mark.clause("FAIL-2")
@pytest.mark.parametrize(
    ("error", "error_class", "retryable"),
    [
        (TimeoutError(), ErrorClass.NETWORK_TIMEOUT, True),
        (ConnectionResetError(), ErrorClass.CONNECTION_LOST, True),
        (BrokenPipeError(), ErrorClass.CONNECTION_LOST, True),
        (ConnectionRefusedError(), ErrorClass.CONNECT_FAILED, True),
        (OSError(errno.EHOSTUNREACH, "no route"), ErrorClass.CONNECT_FAILED, True),
        (OSError(errno.ENOSPC, "disk full"), ErrorClass.RESOURCE, True),
        (OSError(errno.EIO, "I/O error"), ErrorClass.RESOURCE, True),
        (MemoryError(), ErrorClass.RESOURCE, True),
        (ServiceError(Answer(429)), ErrorClass.RATE_LIMITED, True),
        (ServiceError(Answer(502)), ErrorClass.UPSTREAM_5XX, True),
        (ServiceError(Answer(409)), ErrorClass.CONFLICT, True),
        (ServiceError(Answer(422)), ErrorClass.SCHEMA_INVALID, False),
        (ServiceError(Answer(401)), ErrorClass.AUTH_DENIED, False),
        (ServiceError(Answer(403)), ErrorClass.PERMISSION_DENIED, False),
        (ServiceError(Answer(404)), ErrorClass.NOT_FOUND, False),
        (ServiceError(Answer(400, {}, b'{"code": "content_filter"}')), ErrorClass.POLICY_REJECTED, False),
        (TypeError(), ErrorClass.BUG, False),
        (KeyError("x"), ErrorClass.BUG, False),
        (AttributeError(), ErrorClass.BUG, False),
        (AssertionError(), ErrorClass.BUG, False),
        (NotImplementedError(), ErrorClass.BUG, False),
        (RecursionError(), ErrorClass.BUG, False),
        (SystemExit(404), ErrorClass.BUG, False),
        (KeyboardInterrupt(), ErrorClass.BUG, False),
        (asyncio.CancelledError(), ErrorClass.BUG, False),
        (RuntimeError("who knows"), ErrorClass.UNKNOWN, True),
        (ValueError("who knows"), ErrorClass.UNKNOWN, True),
        (ShopError(), ErrorClass.UNKNOWN, True),
    ],
    ids=repr,
)
def test_each_kind_of_failure_has_its_class(
    error: BaseException, error_class: ErrorClass, retryable: bool
) -> None:
    failure = classify(error)

    assert (failure.error_class, failure.retryable) == (error_class, retryable)


class Essay(BaseModel):
    """Something to validate."""

    words: int


@pytest.mark.clause("FAIL-2")
def test_a_payload_that_does_not_validate_is_final_and_its_content_is_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        Essay.model_validate({"words": SECRET})

    failure = classify(caught.value)

    assert (failure.error_class, failure.retryable) == (ErrorClass.SCHEMA_INVALID, False)
    assert "words: Input should be a valid integer" in failure.message
    assert SECRET not in failure.message + failure.stack


@pytest.mark.clause("FAIL-2")
def test_a_payload_that_is_no_json_is_final() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")

    assert classify(caught.value).error_class is ErrorClass.SCHEMA_INVALID


def test_sqlite_is_known_by_its_own_codes() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    database.execute("INSERT INTO t VALUES (1, 'a')")

    def met(statement: str) -> ErrorClass:
        with pytest.raises(sqlite3.Error) as caught:
            database.execute(statement)
        return classify(caught.value).error_class

    assert met("INSERT INTO t VALUES (1, 'b')") is ErrorClass.CONFLICT
    assert met("INSERT INTO t VALUES (2, NULL)") is ErrorClass.SCHEMA_INVALID
    database.close()


def test_a_locked_sqlite_file_is_tried_again(tmp_path: Any) -> None:
    holder, other = (sqlite3.connect(tmp_path / "a.db", timeout=0, isolation_level=None) for _ in range(2))
    holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(sqlite3.OperationalError) as caught:
        other.execute("BEGIN IMMEDIATE")

    assert classify(caught.value).error_class is ErrorClass.DB_TRANSIENT
    holder.close()
    other.close()


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        ("ThrottlingException", ErrorClass.RATE_LIMITED),
        ("SlowDown", ErrorClass.RATE_LIMITED),
        ("ExpiredToken", ErrorClass.AUTH_DENIED),
        ("NoSuchKey", ErrorClass.NOT_FOUND),
    ],
)
def test_aws_keeps_its_answer_in_a_dictionary(code: str, error_class: ErrorClass) -> None:
    metadata = {"HTTPStatusCode": 404, "HTTPHeaders": {"retry-after": "4"}}

    failure = classify(ServiceError({"Error": {"Code": code}, "ResponseMetadata": metadata}))

    assert failure.error_class is error_class
    assert failure.wait == timedelta(seconds=4)


def test_an_error_is_known_by_what_it_was_raised_from() -> None:
    failure = classify(caused(ShopError("cannot grade"), caused(RuntimeError(), ServiceError(Answer(503)))))

    assert failure.error_class is ErrorClass.OVERLOADED
    assert failure.upstream_status == 503
    assert failure.message == "ShopError: cannot grade"


def test_a_known_error_outweighs_what_it_was_raised_from() -> None:
    assert classify(caused(TimeoutError(), KeyError("x"))).error_class is ErrorClass.NETWORK_TIMEOUT


def test_what_was_being_handled_can_make_an_error_retryable() -> None:
    failure = classify(during(ShopError(), ServiceError(Answer(429, {"retry-after": "20"}))))

    assert failure.error_class is ErrorClass.RATE_LIMITED
    assert failure.wait == timedelta(seconds=20)
    assert failure.sent is Sent.MAYBE


@pytest.mark.parametrize("handled", [KeyError("x"), ServiceError(Answer(404))])
def test_what_was_being_handled_does_not_make_an_error_final(handled: Exception) -> None:
    failure = classify(during(ShopError(), handled))

    assert (failure.error_class, failure.retryable) == (ErrorClass.UNKNOWN, True)


def wrapper(beneath: BaseException | None = None, **places: Any) -> Exception:
    """A lost connection as `requests` reports it: with what it was made from among its arguments, or elsewhere."""
    kind = type("ConnectionError", (OSError,), {"__module__": "requests.exceptions"})
    error: Exception = kind(beneath) if beneath else kind("pool")
    for place, value in places.items():
        setattr(error, place, value)
    return error


@pytest.mark.parametrize(
    "error",
    [
        wrapper(TimeoutError()),
        wrapper(__cause__=TimeoutError()),
        wrapper(__context__=TimeoutError()),
        wrapper(reason=TimeoutError()),
        wrapper(wrapper(TimeoutError()), __cause__=ShopError(), reason="none"),
    ],
)
def test_a_wrapper_leaves_the_word_to_what_it_wraps_wherever_it_keeps_it(error: Exception) -> None:
    assert classify(error).error_class is ErrorClass.NETWORK_TIMEOUT


@pytest.mark.parametrize(
    "error",
    [
        wrapper(),
        wrapper(ShopError()),
        wrapper(reason="no route"),
        wrapper(__context__=TimeoutError(), __suppress_context__=True),
    ],
)
def test_a_wrapper_speaks_for_itself_where_nothing_beneath_is_known(error: Exception) -> None:
    assert classify(error).error_class is ErrorClass.CONNECTION_LOST


def test_in_a_ring_of_wrappers_each_is_asked_once_and_the_innermost_speaks() -> None:
    inner = type("APITimeoutError", (Exception,), {"__module__": "openai"})("inner")
    outer = wrapper(wrapper(inner))
    inner.__cause__ = outer

    assert classify(outer).error_class is ErrorClass.NETWORK_TIMEOUT


def test_a_connection_that_failed_over_a_certificate_is_a_matter_of_configuration() -> None:
    failed = type("ConnectError", (Exception,), {"__module__": "httpx"})("no connection")

    failure = classify(caused(failed, ssl.SSLCertVerificationError(1, "self-signed certificate")))

    assert (failure.error_class, failure.retryable) == (ErrorClass.MISCONFIGURED, False)


def test_a_failed_connection_stays_one_whatever_led_to_it() -> None:
    refused = caused(ConnectionRefusedError(), ConnectionResetError())

    assert classify(refused).error_class is ErrorClass.CONNECT_FAILED
    assert classify(caused(ConnectionRefusedError(), ShopError())).error_class is ErrorClass.CONNECT_FAILED


def test_a_hundred_links_are_looked_at_and_no_more() -> None:
    def under(unknown_errors: int) -> Exception:
        error: Exception = KeyError("deep")
        for _ in range(unknown_errors):
            error = caused(ShopError(), error)
        return error

    assert classify(under(99)).error_class is ErrorClass.BUG
    assert classify(under(100)).error_class is ErrorClass.UNKNOWN


def test_a_wait_that_is_asked_for_in_the_body_is_kept() -> None:
    body = b'{"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "9s"}]}}'

    assert classify(ServiceError(Answer(429, content=body))).wait == timedelta(seconds=9)


def test_a_context_that_was_declared_irrelevant_is_not_looked_at() -> None:
    error = during(ShopError(), TimeoutError())
    error.__suppress_context__ = True

    assert classify(error).error_class is ErrorClass.UNKNOWN


def test_a_handler_that_only_says_retry_leaves_the_rest_to_the_cause() -> None:
    overloaded = ServiceError(Answer(503, {"retry-after": "20"}))

    again = classify(caused(Retryable("later"), overloaded))
    never = classify(caused(Permanent("enough"), overloaded))

    assert (again.error_class, again.retryable) == (ErrorClass.OVERLOADED, True)
    assert again.wait == timedelta(seconds=20)
    assert (never.error_class, never.retryable) == (ErrorClass.OVERLOADED, False)


def test_what_a_handler_says_goes_before_what_its_cause_says() -> None:
    overloaded = ServiceError(Answer(503, {"retry-after": "20"}))

    later = classify(caused(Retryable("later", after=30), overloaded))
    named = classify(caused(Permanent("gone", error_class=ErrorClass.NOT_FOUND), overloaded))
    coded = classify(caused(Permanent("not yours", code=PublicCode.FORBIDDEN), overloaded))

    assert (later.wait, later.code) == (timedelta(seconds=30), PublicCode.GW_5XX)
    assert (named.error_class, named.wait) == (ErrorClass.NOT_FOUND, None)
    assert (coded.error_class, coded.code) == (ErrorClass.OVERLOADED, PublicCode.FORBIDDEN)


@pytest.mark.parametrize("error_class", [ErrorClass.NETWORK_TIMEOUT, ErrorClass.UNKNOWN])
def test_a_failed_stage_speaks_with_its_own_failure_whatever_it_was_raised_from(
    error_class: ErrorClass,
) -> None:
    failure = Failure.of(error_class, "no result within 60 s")

    assert classify(StageFailed("llm", failure)) == failure
    assert classify(caused(StageFailed("llm", failure), KeyError("x"))) == failure


def test_another_jobs_failure_is_final_and_says_nothing_about_this_ones_provider() -> None:
    failure = classify(JobFailed(Failure.of(ErrorClass.OVERLOADED, "come back later")))

    assert failure.error_class is ErrorClass.OVERLOADED
    assert not failure.retryable
    assert (failure.scope, failure.verdict) == (Scope.JOB, Verdict.IGNORE)


def test_a_wait_in_vain_is_final_where_it_is_stored_and_tried_again_elsewhere() -> None:
    stored = Failure.of(ErrorClass.TIMEOUT, "job 7 did not end")

    assert classify(ResultTimeout("job 7 did not end", failure=stored)) == stored
    assert classify(ResultTimeout("job 7 did not end")).retryable


def test_in_a_group_the_member_that_cannot_be_retried_decides() -> None:
    group = ExceptionGroup("two", [TimeoutError("slow"), ExceptionGroup("one", [ServiceError(Answer(403))])])

    failure = classify(group)

    assert (failure.error_class, failure.retryable) == (ErrorClass.PERMISSION_DENIED, False)
    assert failure.sent is Sent.MAYBE
    assert failure.message == "ServiceError: the service said no"


def test_in_a_group_that_can_be_retried_the_longest_wait_counts() -> None:
    members = [ServiceError(Answer(429, {"retry-after": wait})) for wait in ("3", "30", "20")]

    assert classify(ExceptionGroup("three", members)).wait == timedelta(seconds=30)


def test_in_a_group_a_wait_that_was_asked_for_counts_more_than_none() -> None:
    asked = ServiceError(Answer(429, {"retry-after": "3"}))

    assert classify(ExceptionGroup("two", [TimeoutError(), asked])).wait == timedelta(seconds=3)


def test_a_group_with_an_unknown_error_in_it_may_have_sent() -> None:
    failure = classify(ExceptionGroup("two", [ServiceError(Answer(429)), ShopError()]))

    assert failure.retryable
    assert failure.sent is Sent.MAYBE


@pytest.mark.clause("FAIL-5")
@pytest.mark.parametrize(
    "subject",
    [
        OutOfStockError,
        ShopError,
        f"{OutOfStockError.__module__}.OutOfStockError",
        f"{OutOfStockError.__module__.partition('.')[0]}.ShopError",
        lambda error: "sold" in str(error),
    ],
)
def test_users_teach_the_classifier_by_class_by_name_and_by_predicate(subject: Any) -> None:
    lesson = rule(
        subject, error_class=ErrorClass.CONFLICT, retryable=False, code=PublicCode.NOT_READY, wait="5m"
    )

    failure = classify(OutOfStockError("sold out"), lesson)

    assert (failure.error_class, failure.retryable) == (ErrorClass.CONFLICT, False)
    assert (failure.code, failure.wait) == (PublicCode.NOT_READY, timedelta(minutes=5))


def test_the_services_advice_on_retrying_outweighs_the_table() -> None:
    forbidden = classify(ServiceError(Answer(503, {"x-should-retry": "false"})))
    allowed = classify(ServiceError(Answer(400, {"x-should-retry": "true"})))

    assert (forbidden.error_class, forbidden.retryable) == (ErrorClass.OVERLOADED, False)
    assert (allowed.error_class, allowed.retryable) == (ErrorClass.SCHEMA_INVALID, True)


@pytest.mark.clause("FAIL-5")
def test_a_users_rule_outweighs_the_table_and_the_services_advice() -> None:
    lesson = rule(ServiceError, error_class=ErrorClass.NOT_FOUND, retryable=True)

    failure = classify(ServiceError(Answer(404, {"x-should-retry": "false"})), lesson)

    assert failure.retryable


def test_the_first_of_a_users_rules_that_fits_decides() -> None:
    rules = (
        rule(OutOfStockError, error_class=ErrorClass.CONFLICT),
        rule(ShopError, error_class=ErrorClass.BUG),
    )

    assert classify(OutOfStockError(), *rules).error_class is ErrorClass.CONFLICT
    assert classify(ShopError(), *rules).error_class is ErrorClass.BUG


def test_a_users_rule_also_knows_a_cause() -> None:
    lesson = rule(ShopError, error_class=ErrorClass.CONFLICT)

    assert classify(caused(RuntimeError(), ShopError()), lesson).error_class is ErrorClass.CONFLICT


def test_a_predicate_that_stumbles_does_not_fit() -> None:
    lesson = rule(lambda error: error.nothing_like_that, error_class=ErrorClass.CONFLICT)  # type: ignore[attr-defined]

    assert classify(TimeoutError(), lesson).error_class is ErrorClass.NETWORK_TIMEOUT


@pytest.mark.parametrize("subject", [7, None, int])
def test_a_rule_about_no_exception_is_refused(subject: Any) -> None:
    with pytest.raises(TypeError, match="A rule is about"):
        rule(subject, error_class=ErrorClass.BUG)


def test_no_signal_stands_in_the_table_twice() -> None:
    assert len(TABLE) == len(RULES)


def test_every_class_that_an_exception_can_mean_is_in_the_table() -> None:
    made_elsewhere = {ErrorClass.WORKER_LOST, ErrorClass.UNKNOWN}

    assert {line.error_class for line in RULES} == set(ErrorClass) - made_elsewhere


@pytest.mark.clause("RET-4")
def test_a_date_without_a_reference_is_read_against_now() -> None:
    error = ServiceError(Answer(503, {"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT"}))

    failure = Classifier().classify(error, now=datetime(2026, 10, 21, 7, 28, tzinfo=UTC))

    assert failure.wait == timedelta(seconds=10)


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no")


class Trap(Exception):
    """An exception that fights back wherever it is touched."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Hollow:
    """An answer that raises on every question."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def a_cycle() -> Exception:
    first, second = ShopError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def a_long_chain() -> Exception:
    error: Exception = KeyError("deep")
    for _ in range(5_000):
        error = caused(ShopError(), error)
    return error


@pytest.mark.parametrize(
    "make",
    [
        Mute,
        Trap,
        lambda: ServiceError(Hollow()),
        lambda: ServiceError(Answer(10**9)),
        lambda: ServiceError(Answer(True)),
        lambda: ServiceError({"ResponseMetadata": 7, "Error": []}),
        lambda: ServiceError(Answer(200, content=b"[" * 60_000)),
        a_cycle,
        a_long_chain,
        lambda: ExceptionGroup("traps", [Mute(), Trap()]),
        lambda: ShopError("\ud800 lone \x00 surrogate"),
    ],
)
def test_no_exception_is_too_broken_to_be_classified(make: Callable[[], Exception]) -> None:
    failure = classify(make())

    assert failure.error_class is ErrorClass.UNKNOWN
    assert failure.message
    json.dumps(failure.to_dict()).encode()
    assert "\x00" not in failure.message + failure.stack
    failure.message.encode()


def test_a_response_that_cannot_be_asked_leaves_the_class_of_its_exception() -> None:
    error = TimeoutError()
    error.response = Hollow()  # type: ignore[attr-defined]  # as careless libraries do

    assert classify(error).error_class is ErrorClass.NETWORK_TIMEOUT


@given(st.text(), st.lists(st.text(), max_size=3))
def test_a_message_is_one_line_of_bounded_length(text: str, notes: list[str]) -> None:
    error = ShopError(text)
    for note in notes:
        error.add_note(note)

    failure = classify(error)

    assert len(failure.message.splitlines()) == 1
    assert len(failure.message) <= 500
    assert len(failure.stack) <= 8_000


@pytest.mark.clause("FAIL-3", "messages")
def test_a_message_carries_no_traceback_and_no_path() -> None:
    text = "failed at /srv/app/grade.py and C:\\jobs\\a.txt\nTraceback (most recent call last):\n  File ..."

    failure = classify(ShopError(text))

    assert failure.message == "ShopError: failed at <path> and <path>"


def test_an_address_is_not_taken_for_a_path() -> None:
    assert classify(ShopError("POST https://api.test/home/x failed")).message.endswith(
        "https://api.test/home/x failed"
    )


def test_a_file_is_not_named_in_the_message() -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        open("/nowhere/payroll.csv")  # noqa: SIM115 - it never opens

    assert classify(caught.value).message == "FileNotFoundError: No such file or directory"


@pytest.mark.clause("FAIL-3", "messages")
def test_a_secret_is_gone_from_message_causes_notes_and_groups() -> None:
    member = caused(ShopError(f"key {SECRET}"), RuntimeError(f"header {SECRET}"))
    member.add_note(f"sent {SECRET}")
    failure = Classifier(redact=masked).classify(ExceptionGroup(f"all of {SECRET}", [member]))

    assert SECRET not in failure.message + failure.stack
    assert failure.stack.count("***") == 4


def test_a_secret_at_the_cut_is_redacted_whole() -> None:
    failure = Classifier(redact=masked).classify(ShopError("x" * 485 + SECRET))

    assert "sk-" not in failure.message


def test_text_that_cannot_be_redacted_is_not_shown() -> None:
    def broken(text: str) -> str:
        raise ValueError(text)

    failure = Classifier(redact=broken).classify(ShopError(SECRET))

    assert (failure.message, failure.stack) == ("ShopError", "")


def test_a_stack_shows_the_path_but_no_values() -> None:
    def grade() -> None:
        essay = SECRET.upper()
        raise ShopError(len(essay))

    with pytest.raises(ShopError) as caught:
        grade()
    stack = classify(caught.value).stack

    assert "in grade" in stack
    assert stack.endswith("ShopError: 14")
    assert SECRET.upper() not in stack


def test_of_a_long_stack_the_end_is_kept() -> None:
    def dig(depth: int) -> None:
        if depth == 0:
            raise ShopError("bottom " + "y" * 7_000)
        dig(depth - 1)

    with pytest.raises(ShopError) as caught:
        dig(200)
    stack = classify(caught.value).stack

    assert len(stack) <= 8_000
    assert stack.endswith("yyy")


@pytest.mark.clause("DLQ-2")
@pytest.mark.clause("FAIL-3", "messages")
@pytest.mark.parametrize("secret", CORPUS, ids=lambda secret: secret.name)
def test_nothing_of_a_failure_holds_a_secret(secret: Secret) -> None:
    error = caused(ServiceError(Answer(503, {"x-request-id": secret.text})), ShopError(secret.text))
    error.add_note(secret.text)

    stored = Classifier(redact=Redactor(b"k")).classify(ExceptionGroup(secret.text, [error])).to_dict()

    assert "request_id" in stored["context"]
    for shown in (stored["message"], stored["stack"], stored["context"]["request_id"]):
        assert secret.value not in shown


def sell() -> None:
    raise ShopError("sold out")


def resell() -> None:
    try:
        sell()
    except ShopError as error:
        raise RuntimeError("again") from error


def met(act: Callable[[], None], *rules: Rule) -> Failure:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, it is looked at
        act()
    return classify(caught.value, *rules)


def test_a_failure_knows_its_place_in_the_application() -> None:
    failure = met(sell)

    assert failure.context == {"place": "tests.unit.test_classifier:sell"}
    assert failure.fingerprint == fingerprint_of(ErrorClass.UNKNOWN, "tests.unit.test_classifier:sell")


def test_failures_of_one_class_at_one_place_have_one_fingerprint() -> None:
    conflict = rule(ShopError, error_class=ErrorClass.CONFLICT)

    assert met(sell).fingerprint == met(lambda: sell()).fingerprint  # noqa: PLW0108 - another path to the same place
    assert len({met(sell).fingerprint, met(resell).fingerprint, met(sell, conflict).fingerprint}) == 3


def test_the_place_of_a_group_is_that_of_the_member_that_decides() -> None:
    def both() -> None:
        try:
            sell()
        except ShopError as error:
            raise ExceptionGroup("both", [error]) from None

    assert met(both).context["place"] == "tests.unit.test_classifier:sell"


def test_an_exception_that_was_never_raised_has_the_place_of_its_cause() -> None:
    with pytest.raises(ShopError) as cause:
        sell()

    failure = classify(caused(RuntimeError(), cause.value))

    assert failure.context["place"] == "tests.unit.test_classifier:sell"


def test_a_failure_without_a_place_has_the_fingerprint_of_its_class() -> None:
    failure = classify(TimeoutError())

    assert (failure.context, failure.fingerprint) == ({}, fingerprint_of(ErrorClass.NETWORK_TIMEOUT))


def test_the_services_name_for_the_request_is_kept_from_wherever_it_was_said() -> None:
    failure = classify(caused(ShopError(), ServiceError(Answer(503, {"X-Request-Id": "req_7"}))))

    assert failure.context == {"request_id": "req_7"}


def test_a_long_request_id_is_cut_after_it_was_redacted() -> None:
    answer = Answer(503, {"request-id": "x" * 190 + SECRET})

    failure = Classifier(redact=lambda text: masked(text) + "y" * 100).classify(ServiceError(answer))

    assert failure.context["request_id"] == "x" * 190 + "***" + "y" * 7


def test_an_error_is_judged_without_a_look_at_its_words() -> None:
    def refused(_: str) -> str:
        raise AssertionError("a classification without text redacts nothing")

    classified = Classifier(redact=refused).classify_without_text(
        caused(RuntimeError("x" * 10_000), ConnectionRefusedError())
    )

    assert classified.failure.error_class is ErrorClass.CONNECT_FAILED
    assert (classified.failure.message, classified.without_text.message) == ("", "RuntimeError")
    assert classified.is_long


def test_a_failure_that_has_its_words_keeps_them() -> None:
    known = Failure.of(ErrorClass.BUG, "sold out")

    classified = Classifier().classify_without_text(StageFailed("sell", known))

    assert classified.without_text == known
    assert not classified.is_long


def test_short_words_are_not_long() -> None:
    assert not Classifier().classify_without_text(ShopError("x" * 2_000)).is_long
    assert Classifier().classify_without_text(ShopError("x" * 2_001)).is_long


def test_an_error_is_described_by_its_line_alone() -> None:
    error = ExceptionGroup("both", [ShopError(SECRET), ShopError("sold out")])

    assert Classifier(redact=masked).describe(error) == "ShopError: ***"
    assert Classifier(redact=masked).describe(StageFailed("sell", Failure.of(ErrorClass.BUG, "no"))) == "no"

    def broken(_: str) -> str:
        raise RuntimeError("no")

    assert Classifier(redact=broken).describe(ShopError("sold out")) == "ShopError"


@pytest.mark.clause("DLQ-2")
def test_the_texts_of_a_failure_are_bounded_and_redacted_once() -> None:
    redacted: list[str] = []
    members = [ShopError(f"{number} {'x' * 1_000_000}") for number in range(10)]

    def redact(text: str) -> str:
        redacted.append(text)
        return Redactor(b"k")(text)

    Classifier(redact=redact).classify(ExceptionGroup("all", members))

    assert sorted(map(len, redacted)) == [len("all (10 sub-exceptions)"), 1_000_002]
