"""What can be read from one exception without knowing its library."""

import errno
import json
import smtplib
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.failures.evidence import links, names, read, request_id


class ServiceError(Exception):
    """An exception of a client library that is not known; it carries what it is given."""

    def __init__(self, **carried: Any) -> None:
        super().__init__("the service said no")
        self.__dict__.update(carried)


class GuardedError(Exception):
    """An exception with a property that cannot be read."""

    @property
    def response(self) -> object:
        raise RuntimeError("not now")


def an_unknown_error(module: str, name: str, **carried: Any) -> Exception:
    """An exception as *module* would raise it, without that library."""
    error: Exception = type(name, (Exception,), {"__module__": module})()
    error.__dict__.update(carried)
    return error


def signals_of(error: BaseException) -> list[str]:
    """Return the signals of *error* but for the names of classes and the numbers of the system."""
    return [signal for signal in read(error).signals if "." not in signal and not signal.startswith("errno ")]


def answered(body: object) -> Exception:
    return ServiceError(response=SimpleNamespace(_content=json.dumps(body).encode()))


def test_an_exception_is_known_by_its_class_and_every_ancestor() -> None:
    assert list(names(KeyError)) == [
        "builtins.KeyError",
        "builtins.LookupError",
        "builtins.Exception",
        "builtins.BaseException",
    ]


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("botocore.exceptions", "botocore"),
        ("httpx2._exceptions", "httpx"),
        ("httpcore", "httpx"),
        ("httpcore2.sync", "httpx"),
        ("aiosmtplib.errors", "smtplib"),
        ("psycopg2.errors", "psycopg"),
    ],
)
def test_a_class_is_named_by_its_outermost_package_and_kin_by_the_one_that_is_known(
    module: str, package: str
) -> None:
    assert read(an_unknown_error(module, "TimeoutError")).signals[0] == f"{package}.TimeoutError"


def test_the_most_specific_signal_comes_first() -> None:
    error = an_unknown_error(
        "shop.errors", "ShopError", status_code=409, body={"code": "busy"}, sqlstate="40001"
    )

    assert read(error).signals == (
        "code busy",
        "http 409",
        "http 4xx",
        "type busy",
        "sqlstate 40001",
        "sqlstate 40",
        "shop.ShopError",
        "builtins.Exception",
        "builtins.BaseException",
    )


def test_what_is_no_ordinary_exception_is_known_by_its_name_alone() -> None:
    assert read(SystemExit(404)).signals == ("builtins.SystemExit", "builtins.BaseException")


@pytest.mark.parametrize(
    "carried",
    [
        {"response": SimpleNamespace(status_code=503)},
        {"response": SimpleNamespace(status=503)},
        {"status_code": 503},
        {"status": 503},
        {"code": 503},
        {"response": {"ResponseMetadata": {"HTTPStatusCode": 503}}},
        {"response": SimpleNamespace(status_code="busy"), "status": 503},
        {"response": SimpleNamespace(status_code=503), "status_code": 400, "code": 7},
        {"status": True, "code": 503},
        {"status_code": 60, "code": 503},
    ],
    ids=str,
)
def test_a_status_is_found_wherever_a_client_keeps_it(carried: dict[str, Any]) -> None:
    evidence = read(ServiceError(**carried))

    assert evidence.status == 503
    assert evidence.signals[:2] == ("http 503", "http 5xx")


@pytest.mark.parametrize("status", [100, 599])
def test_a_number_from_100_to_599_is_a_status(status: int) -> None:
    assert read(ServiceError(status=status)).status == status


@pytest.mark.parametrize("status", [99, 600, "503", True, None])
def test_anything_else_is_none(status: object) -> None:
    assert read(ServiceError(status=status)).status is None


@pytest.mark.parametrize(
    ("status", "signals"),
    [
        (399, []),
        (400, ["http 400", "http 4xx"]),
        (500, ["http 500", "http 5xx"]),
        (599, ["http 599", "http 5xx"]),
    ],
)
def test_only_a_status_that_means_an_error_is_a_signal(status: int, signals: list[str]) -> None:
    assert signals_of(ServiceError(status=status)) == signals


@pytest.mark.parametrize("response", [{}, {"ResponseMetadata": 7}, {"ResponseMetadata": {}}])
def test_an_aws_answer_without_its_metadata_says_nothing(response: object) -> None:
    evidence = read(ServiceError(response=response, status_code=503))

    assert (evidence.status, evidence.headers) == (None, {})


@pytest.mark.parametrize(
    "carried",
    [
        {"response": SimpleNamespace(headers={"Retry-After": "3"})},
        {"headers": {"Retry-After": "3"}},
        {"response": SimpleNamespace(headers={}), "headers": {"Retry-After": "3"}},
        {"response": SimpleNamespace(headers={"Retry-After": "3"}), "headers": {"Retry-After": "9"}},
        {"response": {"ResponseMetadata": {"HTTPHeaders": {"Retry-After": "3"}}}},
    ],
    ids=str,
)
def test_headers_are_found_wherever_a_client_keeps_them(carried: dict[str, Any]) -> None:
    assert read(ServiceError(**carried)).headers == {"retry-after": "3"}


@pytest.mark.parametrize(
    "carried",
    [
        {"body": {"code": "busy"}},
        {"details": [{"reason": "busy"}]},
        {"response": {"Error": {"Code": "busy"}}},
        {"response": SimpleNamespace(_content=b'{"error": "busy"}')},
        {"body": "<html>", "details": {"name": "busy"}},
        {"body": {"code": "busy"}, "details": {"code": "else"}},
    ],
    ids=str,
)
def test_a_body_is_found_wherever_a_client_keeps_it(carried: dict[str, Any]) -> None:
    assert signals_of(ServiceError(**carried)) == ["code busy", "type busy"]


def test_the_body_is_handed_on_as_it_was_decoded() -> None:
    assert read(ServiceError(response=SimpleNamespace(_content=b'{"error": ["busy"]}'))).body == {
        "error": ["busy"]
    }


@pytest.mark.parametrize("content", [None, "text", b"{", b"[" * 60_000, b'"text"', b"7"])
def test_content_that_is_no_json_object_or_list_is_no_body(content: object) -> None:
    assert read(ServiceError(response=SimpleNamespace(_content=content))).body is None


def test_a_body_of_64_kilobytes_is_read_and_a_larger_one_is_not() -> None:
    def of_size(size: int) -> Exception:
        return ServiceError(response=SimpleNamespace(_content=b'{"code": "busy"}'.ljust(size)))

    assert signals_of(of_size(65_536)) == ["code busy", "type busy"]
    assert signals_of(of_size(65_537)) == []


@pytest.mark.parametrize("key", ["code", "error_code", "Code", "type", "status", "name", "reason", "error"])
def test_a_service_names_its_error_under_any_of_these_keys(key: str) -> None:
    assert signals_of(answered({key: "busy", "other": "x"})) == ["code busy", "type busy"]


@pytest.mark.parametrize("key", ["error", "Error", "innererror", "details", "violations"])
def test_the_innermost_word_comes_first(key: str) -> None:
    assert signals_of(answered({"code": "outer", key: {"code": "inner"}}))[:2] == ["code inner", "code outer"]


def test_words_are_looked_for_in_known_places_only() -> None:
    assert signals_of(answered({"input": {"code": "echo"}, "code": 7, "message": "x"})) == []


def test_words_are_looked_for_five_levels_deep_and_no_deeper() -> None:
    def at_level(levels: int) -> object:
        return {"code": "busy"} if levels == 0 else {"error": at_level(levels - 1)}

    def in_lists(levels: int) -> object:
        return {"code": "busy"} if levels == 0 else [in_lists(levels - 1)]

    for nest in (at_level, in_lists):
        assert signals_of(answered(nest(5))) == ["code busy", "type busy"]
        assert signals_of(answered(nest(6))) == []


def test_of_a_long_list_twenty_members_are_looked_at() -> None:
    members = [{"code": f"c{number}"} for number in range(25)]

    assert signals_of(answered(members))[:20] == [f"code c{number}" for number in range(20)]
    assert len(signals_of(answered(members))) == 40


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"quotaId": "GenerateRequestsPerDayPerProject"}, "per_day_quota"),
        ({"message": "Your credit balance is too low to go on"}, "credit_balance_too_low"),
    ],
)
def test_what_is_only_said_in_a_sentence_gets_a_word(body: object, word: str) -> None:
    assert signals_of(answered(body)) == [f"code {word}", f"type {word}"]


def test_a_mail_servers_number_is_not_taken_for_that_of_a_web_server() -> None:
    evidence = read(smtplib.SMTPDataError(451, b"greylisted"))

    assert evidence.status == 451
    assert signals_of(smtplib.SMTPDataError(451, b"greylisted")) == ["smtp 451", "smtp 4xx"]


@pytest.mark.parametrize(("code", "signals"), [(250, []), (600, []), (500, ["smtp 500", "smtp 5xx"])])
def test_only_a_mail_servers_refusal_is_a_signal(code: int, signals: list[str]) -> None:
    assert signals_of(smtplib.SMTPDataError(code, b"so")) == signals


def test_kin_of_smtplib_keep_the_number_under_another_name() -> None:
    known = type("SMTPResponseException", (Exception,), {"__module__": "aiosmtplib.errors"})
    error = type("SMTPDataError", (known,), {"__module__": "aiosmtplib.errors", "code": 554})()

    assert signals_of(error) == ["smtp 554", "smtp 5xx"]


def refused(*codes: object, by: str = "smtplib") -> Exception:
    """All recipients were refused: smtplib keeps replies by address, aiosmtplib a list of exceptions."""
    recipients: Any = [ServiceError(code=code) for code in codes]
    if by == "smtplib":
        recipients = {f"{number}@x": (code, b"no") for number, code in enumerate(codes)}
    return an_unknown_error(by, "SMTPRecipientsRefused", recipients=recipients)


@pytest.mark.parametrize("by", ["smtplib", "aiosmtplib"])
@pytest.mark.parametrize(
    ("codes", "signals"),
    [
        ((550,), []),
        ((550, 451), ["smtp 451", "smtp 4xx"]),
        ((450, 452, 550), ["smtp 452", "smtp 4xx"]),
        ((400,), ["smtp 400", "smtp 4xx"]),
        ((499,), ["smtp 499", "smtp 4xx"]),
        ((399, 500), []),
        (("451", None, 450), ["smtp 450", "smtp 4xx"]),
    ],
)
def test_one_recipient_worth_another_try_speaks_for_all(
    by: str, codes: tuple[object, ...], signals: list[str]
) -> None:
    assert signals_of(refused(*codes, by=by)) == signals


@pytest.mark.parametrize("recipients", [None, 7, {"a@x": ()}, {"a@x": 451}, {"a@x": [451]}])
def test_recipients_of_another_make_say_nothing(recipients: object) -> None:
    error = an_unknown_error("smtplib", "SMTPRecipientsRefused", recipients=recipients)

    assert signals_of(error) == []


@pytest.mark.parametrize("place", ["sqlstate", "pgcode"])
def test_a_database_error_gives_its_state_and_the_class_of_it(place: str) -> None:
    assert signals_of(ServiceError(**{place: "23505"})) == ["sqlstate 23505", "sqlstate 23"]


@pytest.mark.parametrize("state", ["2350", "235055", "abcde", 23505, None])
def test_what_is_no_sqlstate_is_no_signal(state: object) -> None:
    assert signals_of(ServiceError(sqlstate=state)) == []


@pytest.mark.parametrize(
    ("name", "signals"),
    [
        ("SQLITE_BUSY", ["SQLITE_BUSY", "SQLITE_BUSY"]),
        ("SQLITE_CONSTRAINT_UNIQUE", ["SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT"]),
        (5, []),
    ],
)
def test_sqlite_gives_its_code_and_the_family_of_it(name: object, signals: list[str]) -> None:
    assert signals_of(ServiceError(sqlite_errorname=name)) == signals


def test_the_system_gives_the_name_of_its_number() -> None:
    assert read(OSError(errno.ENOSPC, "full")).signals[-1] == "errno ENOSPC"


@pytest.mark.parametrize(
    "error",
    [
        ServiceError(errno=errno.ENOSPC),
        OSError("no number"),
        OSError(10**6, "an unknown number"),
        socket.gaierror(socket.EAI_NONAME, "unknown name"),
    ],
    ids=repr,
)
def test_a_number_that_is_not_the_systems_is_no_signal(error: Exception) -> None:
    assert not any(signal.startswith("errno ") for signal in read(error).signals)


def unreadable(module: str) -> Exception:
    """What *module* raises when it reads broken JSON."""
    code: dict[str, Any] = {"__name__": module, "json": json}
    exec("def parse():\n    json.loads('{')", code)
    with pytest.raises(json.JSONDecodeError) as caught:
        code["parse"]()
    return caught.value


@pytest.mark.parametrize(
    "client", ["httpx", "httpx2", "requests", "aiohttp", "openai", "anthropic", "botocore"]
)
def test_json_that_broke_inside_a_client_is_an_unreadable_answer(client: str) -> None:
    assert signals_of(unreadable(f"{client}.inner.parsing")) == ["answer unreadable"]


def test_json_that_broke_elsewhere_is_not() -> None:
    assert signals_of(unreadable("shop.httpx")) == []


def test_another_error_inside_a_client_is_not_an_unreadable_answer() -> None:
    error = ServiceError()
    error.__traceback__ = unreadable("httpx.inner").__traceback__

    assert signals_of(error) == []


def test_a_property_that_cannot_be_read_says_nothing() -> None:
    evidence = read(GuardedError())

    assert (evidence.status, evidence.body, evidence.headers) == (None, None, {})


@pytest.mark.parametrize(
    "carried",
    [
        {"request_id": "req_7"},
        {"response": SimpleNamespace(headers={"X-Request-ID": "req_7"})},
        {"response": SimpleNamespace(headers={"request-id": "req_7"})},
        {"response": SimpleNamespace(headers={"x-amzn-RequestId": "req_7"})},
        {"headers": {"x-request-id": "req_7"}},
        {"response": {"ResponseMetadata": {"RequestId": "req_7"}}},
        {"response": {"ResponseMetadata": {"HTTPHeaders": {"x-amzn-requestid": "req_7"}}}},
        {"request_id": 7, "headers": {"x-request-id": "req_7"}},
        {"request_id": "", "headers": {"x-request-id": "req_7"}},
    ],
    ids=str,
)
def test_a_request_id_is_found_wherever_a_client_keeps_it(carried: dict[str, Any]) -> None:
    assert request_id(ServiceError(**carried)) == "req_7"


@pytest.mark.parametrize("carried", [{}, {"response": None}, {"response": {}}, {"request_id": None}])
def test_a_service_that_named_no_request_leaves_it_empty(carried: dict[str, Any]) -> None:
    assert request_id(ServiceError(**carried)) == ""


def test_an_exception_is_followed_to_what_it_came_from_and_each_is_met_once() -> None:
    error, cause = ValueError("late"), KeyError("early")
    error.__cause__ = error.__context__ = cause
    cause.__cause__ = error

    assert links(error) == [error, cause]
