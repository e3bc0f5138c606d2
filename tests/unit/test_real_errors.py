"""Exceptions as the real client libraries raise them, met over the loopback."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp
import anthropic
import asyncpg
import httpx
import openai
import pytest
import requests
import urllib3

from holdfast.core.failures.classifier import Classifier
from holdfast.core.failures.failure import ErrorClass, Failure, Scope, Sent, Verdict
from tests.unit.loopback import Act, answer, closed_port, hang_up, raw, reset, service, stay_silent, truncate

pytestmark = [pytest.mark.clause("FAIL-5"), pytest.mark.clause("FAIL-1")]

Call = Callable[..., object]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def failure_of(call: Call, address: str) -> Failure:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which exception it is, is the library's affair
        call(address)
    return Classifier().classify(caught.value)


def failure_against(call: Call, act: Act) -> Failure:
    with service(act) as address:
        return failure_of(call, address)


def by_httpx(address: str, timeout: float = 5) -> object:
    with httpx.Client(timeout=timeout) as client:
        return client.post(address, json={"text": "hello"}).raise_for_status().json()


def by_requests(address: str, timeout: float = 5) -> object:
    response = requests.post(address, json={"text": "hello"}, timeout=timeout)
    response.raise_for_status()
    return response.json()


def by_aiohttp(address: str, timeout: float = 5) -> object:
    async def post() -> object:
        limits = aiohttp.ClientTimeout(sock_read=timeout)
        async with (
            aiohttp.ClientSession(timeout=limits, raise_for_status=True) as session,
            session.post(address, json={"text": "hello"}) as response,
        ):
            return await response.json()

    return asyncio.run(post())


def by_openai(address: str, timeout: float = 5) -> object:
    with openai.OpenAI(api_key="k", base_url=address, max_retries=0, timeout=timeout) as client:
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])


def by_anthropic(address: str, timeout: float = 5) -> object:
    with anthropic.Anthropic(api_key="k", base_url=address, max_retries=0, timeout=timeout) as client:
        return client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}]
        )


def by_urllib(address: str, timeout: float = 5) -> object:
    with urllib.request.urlopen(address, timeout=timeout) as response:
        return response.read()


EVERY_CLIENT = pytest.mark.parametrize(
    "call",
    [by_httpx, by_requests, by_aiohttp, by_openai, by_anthropic, by_urllib],
    ids=lambda call: call.__name__,
)


@EVERY_CLIENT
def test_a_refused_connection_was_never_sent(call: Call) -> None:
    failure = failure_of(call, closed_port())

    assert failure.error_class is ErrorClass.CONNECT_FAILED
    assert failure.retryable
    assert failure.sent is Sent.NO
    assert failure.verdict is Verdict.FAIL


@pytest.mark.clause("FAIL-2")
@EVERY_CLIENT
def test_a_reset_leaves_open_whether_the_request_took_effect(call: Call) -> None:
    failure = failure_against(call, reset)

    assert failure.error_class is ErrorClass.CONNECTION_LOST
    assert failure.retryable
    assert failure.sent is Sent.MAYBE


@EVERY_CLIENT
def test_a_hang_up_without_an_answer_is_a_lost_connection(call: Call) -> None:
    failure = failure_against(call, hang_up)

    assert failure.error_class is ErrorClass.CONNECTION_LOST


@pytest.mark.parametrize(
    "call", [by_httpx, by_requests, by_aiohttp, by_urllib], ids=lambda call: call.__name__
)
def test_an_answer_that_breaks_off_is_a_lost_connection(call: Call) -> None:
    failure = failure_against(call, truncate)

    assert failure.error_class is ErrorClass.CONNECTION_LOST
    assert failure.sent is Sent.MAYBE


@pytest.mark.clause("FAIL-2")
@EVERY_CLIENT
def test_silence_is_a_timeout_that_may_have_been_sent(call: Call) -> None:
    failure = failure_against(partial(call, timeout=0.1), stay_silent)

    assert failure.error_class is ErrorClass.NETWORK_TIMEOUT
    assert failure.retryable
    assert failure.sent is Sent.MAYBE


@pytest.mark.clause("FAIL-2")
@EVERY_CLIENT
@pytest.mark.parametrize(
    ("status", "error_class", "retryable"),
    [
        (400, ErrorClass.SCHEMA_INVALID, False),
        (401, ErrorClass.AUTH_DENIED, False),
        (402, ErrorClass.QUOTA_EXHAUSTED, False),
        (403, ErrorClass.PERMISSION_DENIED, False),
        (404, ErrorClass.NOT_FOUND, False),
        (408, ErrorClass.NETWORK_TIMEOUT, True),
        (409, ErrorClass.CONFLICT, True),
        (410, ErrorClass.NOT_FOUND, False),
        (413, ErrorClass.TOO_LARGE, False),
        (418, ErrorClass.SCHEMA_INVALID, False),
        (422, ErrorClass.SCHEMA_INVALID, False),
        (429, ErrorClass.RATE_LIMITED, True),
        (500, ErrorClass.UPSTREAM_5XX, True),
        (502, ErrorClass.UPSTREAM_5XX, True),
        (503, ErrorClass.OVERLOADED, True),
        (504, ErrorClass.NETWORK_TIMEOUT, True),
        (529, ErrorClass.OVERLOADED, True),
        (599, ErrorClass.UPSTREAM_5XX, True),
    ],
)
def test_a_status_means_the_same_through_every_client(
    call: Call, status: int, error_class: ErrorClass, retryable: bool
) -> None:
    failure = failure_against(call, answer(status, {"error": {"message": "scripted"}}))

    assert (failure.error_class, failure.retryable, failure.upstream_status) == (
        error_class,
        retryable,
        status,
    )


@pytest.mark.clause("RET-4")
@EVERY_CLIENT
def test_retry_after_is_read_through_every_client(call: Call) -> None:
    failure = failure_against(call, answer(429, {}, retry_after="17"))

    assert failure.wait == timedelta(seconds=17)
    assert (failure.scope, failure.verdict) == (Scope.PROVIDER, Verdict.LIMIT)


@pytest.mark.parametrize(
    "call", [by_httpx, by_requests, by_openai, by_anthropic], ids=lambda call: call.__name__
)
@pytest.mark.parametrize(
    ("status", "body", "error_class"),
    [
        (
            429,
            {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}},
            ErrorClass.QUOTA_EXHAUSTED,
        ),
        (429, {"error": {"type": "requests", "code": "rate_limit_exceeded"}}, ErrorClass.RATE_LIMITED),
        (400, {"error": {"type": "x", "code": "context_length_exceeded"}}, ErrorClass.TOO_LARGE),
        (400, {"error": {"type": "x", "code": "content_policy_violation"}}, ErrorClass.POLICY_REJECTED),
        (
            400,
            {"error": {"type": "x", "message": "Your credit balance is too low"}},
            ErrorClass.QUOTA_EXHAUSTED,
        ),
        (400, {"error": {"type": "internal_error"}}, ErrorClass.UPSTREAM_5XX),
        (500, {"type": "error", "error": {"type": "overloaded_error"}}, ErrorClass.OVERLOADED),
        (
            401,
            {"error": {"type": "invalid_request_error", "code": "invalid_api_key"}},
            ErrorClass.AUTH_DENIED,
        ),
        (
            429,
            {
                "error": {
                    "status": "RESOURCE_EXHAUSTED",
                    "details": [{"violations": [{"quotaId": "RequestsPerDay"}]}],
                }
            },
            ErrorClass.QUOTA_EXHAUSTED,
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_code_in_the_body_outweighs_the_status(
    call: Call, status: int, body: object, error_class: ErrorClass
) -> None:
    failure = failure_against(call, answer(status, body))

    assert failure.error_class is error_class


def test_an_echo_of_the_request_does_not_speak_for_the_service() -> None:
    body = {"detail": [{"type": "missing", "input": {"code": "insufficient_quota"}}]}

    failure = failure_against(by_httpx, answer(422, body))

    assert failure.error_class is ErrorClass.SCHEMA_INVALID


@pytest.mark.parametrize("call", [by_httpx, by_openai, by_anthropic], ids=lambda call: call.__name__)
def test_the_service_may_forbid_and_allow_a_retry(call: Call) -> None:
    forbidden = failure_against(call, answer(503, {}, x_should_retry="false"))
    allowed = failure_against(call, answer(400, {}, x_should_retry="true"))

    assert not forbidden.retryable
    assert allowed.retryable


@pytest.mark.parametrize(
    "call", [by_httpx, by_requests, by_aiohttp, by_openai], ids=lambda call: call.__name__
)
def test_a_success_with_an_unreadable_body_is_retried_twice(call: Call) -> None:
    failure = failure_against(call, raw(200, b'{"id": ', content_type="application/json"))

    assert failure.error_class is ErrorClass.BAD_RESPONSE
    assert failure.retryable
    assert failure.retries == 2
    assert failure.sent is Sent.YES


def test_an_overload_inside_a_successful_stream_is_an_overload() -> None:
    events = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )

    def stream(address: str) -> object:
        with anthropic.Anthropic(api_key="k", base_url=address, max_retries=0) as client:
            messages: Any = [{"role": "user", "content": "hello"}]
            return list(client.messages.create(model="m", max_tokens=9, messages=messages, stream=True))

    failure = failure_against(stream, raw(200, events, content_type="text/event-stream"))

    assert failure.error_class is ErrorClass.OVERLOADED
    assert failure.retryable


def test_an_error_event_inside_a_successful_openai_stream_is_known_by_its_code() -> None:
    events = b'data: {"error":{"type":"tokens","code":"rate_limit_exceeded","message":"slow down"}}\n\n'

    def stream(address: str) -> object:
        with openai.OpenAI(api_key="k", base_url=address, max_retries=0) as client:
            messages: Any = [{"role": "user", "content": "hello"}]
            return list(client.chat.completions.create(model="m", messages=messages, stream=True))

    failure = failure_against(stream, raw(200, events, content_type="text/event-stream"))

    assert failure.error_class is ErrorClass.RATE_LIMITED


def test_our_own_exhausted_pool_is_not_the_services_fault() -> None:
    async def crowd(address: str) -> None:
        limits, timeout = httpx.Limits(max_connections=1), httpx.Timeout(5, pool=0.05)
        async with httpx.AsyncClient(limits=limits, timeout=timeout) as client, asyncio.timeout(5):
            first = asyncio.create_task(client.get(address))
            await asyncio.sleep(0)
            try:
                await client.get(address)
            finally:
                first.cancel()

    failure = failure_against(lambda address: asyncio.run(crowd(address)), stay_silent)

    assert failure.error_class is ErrorClass.POOL_EXHAUSTED
    assert failure.verdict is Verdict.IGNORE


@pytest.mark.parametrize(
    "call",
    [
        lambda _: httpx.get("ftp://127.0.0.1/"),
        lambda _: httpx.get("http://127.0.0.1:port/"),
        lambda _: requests.get("127.0.0.1/nothing", timeout=1),
        lambda _: requests.get("odd://127.0.0.1/", timeout=1),
        lambda _: by_aiohttp("http://"),
        lambda _: openai.OpenAI(),
    ],
)
def test_an_address_or_a_client_that_cannot_work_is_a_matter_of_configuration(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    failure = failure_of(call, "")

    assert failure.error_class is ErrorClass.MISCONFIGURED
    assert not failure.retryable


def test_endless_redirects_are_a_matter_of_configuration() -> None:
    def follow(address: str) -> object:
        return requests.Session().get(address, timeout=1)

    failure = failure_against(follow, answer(302, location="/again"))

    assert failure.error_class is ErrorClass.MISCONFIGURED


def test_a_retry_adapter_cannot_hide_the_read_timeout_inside_it() -> None:
    def insistent(address: str) -> object:
        with requests.Session() as session:
            retries = urllib3.Retry(total=1, connect=0, read=1, allowed_methods=None, backoff_factor=0)
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
            return session.post(address, timeout=0.05)

    with service(stay_silent) as address, pytest.raises(requests.ConnectionError) as caught:
        insistent(address)
    failure = Classifier().classify(caught.value)

    assert failure.error_class is ErrorClass.NETWORK_TIMEOUT
    assert failure.sent is Sent.MAYBE


@pytest.mark.clause("FAIL-2")
def test_a_name_that_does_not_resolve_was_never_sent() -> None:
    with pytest.raises(socket.gaierror) as caught:
        socket.getaddrinfo("nowhere.invalid", 80, flags=socket.AI_NUMERICHOST)

    failure = Classifier().classify(caught.value)

    assert (failure.error_class, failure.sent) == (ErrorClass.CONNECT_FAILED, Sent.NO)


def certificate_error() -> ssl.SSLCertVerificationError:
    return ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")


def httpx_on_a_bad_certificate() -> Exception:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = certificate_error()
    return error


def requests_on_a_bad_certificate() -> Exception:
    pool: Any = None
    hidden = urllib3.exceptions.MaxRetryError(pool, "/", urllib3.exceptions.SSLError(certificate_error()))
    return requests.exceptions.SSLError(hidden)


def openai_on_a_bad_certificate() -> Exception:
    request: Any = None
    error = openai.APIConnectionError(request=request)
    error.__cause__ = httpx_on_a_bad_certificate()
    return error


def aiohttp_on_a_bad_certificate() -> Exception:
    key: Any = None
    return aiohttp.ClientConnectorCertificateError(key, certificate_error())


@pytest.mark.parametrize(
    "error",
    [
        certificate_error(),
        httpx_on_a_bad_certificate(),
        requests_on_a_bad_certificate(),
        openai_on_a_bad_certificate(),
        aiohttp_on_a_bad_certificate(),
        urllib.error.URLError(certificate_error()),
    ],
    ids=lambda error: type(error).__module__,
)
def test_a_bad_certificate_is_not_retried_though_it_is_an_oserror(error: Exception) -> None:
    failure = Classifier().classify(error)

    assert failure.error_class is ErrorClass.MISCONFIGURED
    assert not failure.retryable


@pytest.mark.parametrize(
    ("error", "error_class", "sent"),
    [
        (asyncpg.SerializationError, ErrorClass.DB_TRANSIENT, Sent.NO),
        (asyncpg.DeadlockDetectedError, ErrorClass.DB_TRANSIENT, Sent.NO),
        (asyncpg.LockNotAvailableError, ErrorClass.DB_TRANSIENT, Sent.NO),
        (asyncpg.TooManyConnectionsError, ErrorClass.DB_TRANSIENT, Sent.NO),
        (asyncpg.DiskFullError, ErrorClass.DB_TRANSIENT, Sent.NO),
        (asyncpg.AdminShutdownError, ErrorClass.DB_TRANSIENT, Sent.NO),
        (asyncpg.CannotConnectNowError, ErrorClass.DB_TRANSIENT, Sent.NO),
        (asyncpg.ClientCannotConnectError, ErrorClass.DB_TRANSIENT, Sent.NO),
        (asyncpg.PostgresConnectionError, ErrorClass.DB_AMBIGUOUS, Sent.MAYBE),
        (asyncpg.ConnectionDoesNotExistError, ErrorClass.DB_AMBIGUOUS, Sent.MAYBE),
        (asyncpg.ConnectionFailureError, ErrorClass.DB_AMBIGUOUS, Sent.MAYBE),
        (asyncpg.UniqueViolationError, ErrorClass.CONFLICT, Sent.NO),
        (asyncpg.NotNullViolationError, ErrorClass.SCHEMA_INVALID, Sent.NO),
        (asyncpg.PostgresSyntaxError, ErrorClass.BUG, Sent.MAYBE),
        (asyncpg.InsufficientPrivilegeError, ErrorClass.PERMISSION_DENIED, Sent.NO),
        (asyncpg.InvalidPasswordError, ErrorClass.MISCONFIGURED, Sent.NO),
    ],
)
def test_postgresql_errors_are_known_by_their_sqlstate(
    error: type[Exception], error_class: ErrorClass, sent: Sent
) -> None:
    failure = Classifier().classify(error("scripted"))

    assert (failure.error_class, failure.sent) == (error_class, sent)


@contextmanager
def mail_server(*replies: bytes) -> Iterator[int]:
    """A mail server that gives these replies in turn, the greeting first, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.settimeout(5)
                for reply in replies:
                    connection.sendall(reply + b"\r\n")
                    lines.readline()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)


def failure_of_mail(*replies: bytes, to: tuple[str, ...] = ("a@example.org",)) -> Failure:
    def send(port: str) -> None:
        with smtplib.SMTP("127.0.0.1", int(port), local_hostname="test", timeout=5) as client:
            client.sendmail("me@example.org", to, "hello")

    with mail_server(*replies) as port:
        return failure_of(send, str(port))


HELLO = (b"220 hi", b"250 hello")


def test_a_busy_mail_server_holds_back_its_whole_provider() -> None:
    failure = failure_of_mail(b"421 too many connections")

    assert failure.error_class is ErrorClass.RATE_LIMITED
    assert (failure.scope, failure.verdict) == (Scope.PROVIDER, Verdict.LIMIT)


def test_a_greylisted_mailbox_holds_back_its_own_job_only() -> None:
    failure = failure_of_mail(*HELLO, b"250 sender", b"451 greylisted", b"250 reset")

    assert failure.error_class is ErrorClass.RATE_LIMITED
    assert failure.retryable
    assert (failure.scope, failure.verdict, failure.sent) == (Scope.JOB, Verdict.IGNORE, Sent.NO)


def test_a_mailbox_that_does_not_exist_is_not_tried_again() -> None:
    failure = failure_of_mail(*HELLO, b"250 sender", b"550 no such user", b"250 reset")

    assert failure.error_class is ErrorClass.RECIPIENT_REJECTED
    assert not failure.retryable


def test_one_recipient_worth_another_try_is_enough_for_one() -> None:
    replies = (*HELLO, b"250 sender", b"550 no such user", b"451 greylisted", b"250 reset")

    failure = failure_of_mail(*replies, to=("a@example.org", "b@example.org"))

    assert failure.error_class is ErrorClass.RATE_LIMITED
    assert failure.retryable


def test_a_mail_server_that_hangs_up_may_have_sent() -> None:
    failure = failure_of_mail(*HELLO, b"250 sender")

    assert (failure.error_class, failure.sent) == (ErrorClass.CONNECTION_LOST, Sent.MAYBE)


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (smtplib.SMTPAuthenticationError(535, b"bad credentials"), ErrorClass.AUTH_DENIED),
        (smtplib.SMTPDataError(552, b"message too big"), ErrorClass.TOO_LARGE),
        (smtplib.SMTPDataError(554, b"refused"), ErrorClass.RECIPIENT_REJECTED),
        (smtplib.SMTPDataError(451, b"try later"), ErrorClass.RATE_LIMITED),
        (smtplib.SMTPNotSupportedError("no AUTH"), ErrorClass.MISCONFIGURED),
    ],
)
def test_smtp_codes_are_not_taken_for_http(error: Exception, error_class: ErrorClass) -> None:
    assert Classifier().classify(error).error_class is error_class
