"""All failures that callers of a service meet, and how the engine has to treat each.

The expectations are stated here, and not read from the engine, because the engine is under test.
"""

from __future__ import annotations

import asyncio
import errno
import json
import smtplib
import sqlite3
import ssl
import wave
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg
import httpx

from holdfast import ErrorClass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HANGS = 100_000.0
LONGEST_WAIT = 300.0
"""Seconds beyond which no service is obeyed."""

REQUEST = httpx.Request("POST", "http://service.invalid/effects")


class Expected(NamedTuple):
    """What has to be made of a failure: its class, whether it is tried again, and after how many seconds at least."""

    error_class: ErrorClass
    passes: bool
    wait: float = 0.0


class Failing(NamedTuple):
    """One failure: with an answer or an error, before the effect or after it."""

    name: str
    means: ErrorClass
    status: int | None = None
    error: Callable[[], BaseException] | None = None
    headers: Mapping[str, str] = {}
    body: str = "{}"
    weight: int = 1
    wait: float = 0.0
    takes_effect: bool = False
    seconds: float = 0.0

    @property
    def expected(self) -> Expected:
        """What has to be made of it."""
        return Expected(self.means, passes=self in PASSING, wait=min(self.wait, LONGEST_WAIT))

    def given(self) -> httpx.Response:
        """Answer, or fail as a client does that got no answer."""
        if self.error is not None:
            raise self.error()
        assert self.status is not None
        return answered(self.status, headers=self.headers, body=self.body)


def answered(status: int, *, headers: Mapping[str, str] | None = None, body: str) -> httpx.Response:
    """Make an answer of the service."""
    return httpx.Response(status, headers=headers, content=body.encode(), request=REQUEST)


class ErrorInStream(Exception):
    """An error that came after the status had said that all is well."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.status_code = 200
        self.body = {"type": "error", "error": {"type": code}}


class Odd(Exception):
    """An exception that no table knows."""


def _http(means: ErrorClass, *statuses: int) -> Iterator[Failing]:
    """Answers that consist of a number."""
    return (Failing(str(status), means, status) for status in statuses)


def _code(code: str) -> str:
    """A body that names its error."""
    return json.dumps({"error": {"code": code}})


def _raises(kind: type[httpx.RequestError]) -> Callable[[], BaseException]:
    return lambda: kind("so says the client", request=REQUEST)


def _mail(kind: Any, code: int) -> Callable[[], BaseException]:
    return lambda: kind(code, b"so says the mail server")


def _recipients(code: int) -> Callable[[], BaseException]:
    return lambda: smtplib.SMTPRecipientsRefused({"ann@example.com": (code, b"not now, or never")})


def _bad_certificate() -> BaseException:
    """Clients call it a failed connection, and keep the reason beneath."""
    error = httpx.ConnectError("certificate verify failed", request=REQUEST)
    error.__cause__ = ssl.SSLCertVerificationError("certificate has expired")
    return error


def _locked() -> BaseException:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorname = "SQLITE_BUSY"
    return error


_NINE_SECONDS = {"date": "Tue, 01 Jan 2030 00:00:00 GMT", "retry-after": "Tue, 01 Jan 2030 00:00:09 GMT"}
_USED_UP = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6s"}
_RETRY_INFO = json.dumps(
    {"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "4.5s"}]}}
)
_Is = ErrorClass

PASSING: Sequence[Failing] = (
    Failing("connect", _Is.CONNECT_FAILED, error=_raises(httpx.ConnectError), weight=4),
    Failing("connect timeout", _Is.CONNECT_FAILED, error=_raises(httpx.ConnectTimeout), seconds=5),
    Failing("proxy", _Is.CONNECT_FAILED, error=_raises(httpx.ProxyError)),
    Failing("pool timeout", _Is.POOL_EXHAUSTED, error=_raises(httpx.PoolTimeout), weight=2, seconds=5),
    Failing("read timeout", _Is.NETWORK_TIMEOUT, error=_raises(httpx.ReadTimeout), weight=3, seconds=5),
    Failing("read timeout, done", _Is.NETWORK_TIMEOUT, error=_raises(httpx.ReadTimeout), weight=3, seconds=5, takes_effect=True),
    Failing("write timeout", _Is.NETWORK_TIMEOUT, error=_raises(httpx.WriteTimeout), seconds=5),
    *_http(_Is.NETWORK_TIMEOUT, 408),
    Failing("504, done", _Is.NETWORK_TIMEOUT, 504, weight=2, takes_effect=True),
    Failing("hangs", _Is.NETWORK_TIMEOUT, 200, weight=2, seconds=HANGS),
    Failing("hangs, done", _Is.NETWORK_TIMEOUT, 200, weight=2, seconds=HANGS, takes_effect=True),
    Failing("reset", _Is.CONNECTION_LOST, error=_raises(httpx.ReadError), weight=3),
    Failing("reset, done", _Is.CONNECTION_LOST, error=_raises(httpx.ReadError), weight=3, takes_effect=True),
    Failing("reset in the middle of the request", _Is.CONNECTION_LOST, error=_raises(httpx.WriteError)),
    Failing("closed with an error, done", _Is.CONNECTION_LOST, error=_raises(httpx.CloseError), takes_effect=True),
    Failing("cut off, done", _Is.CONNECTION_LOST, error=_raises(httpx.RemoteProtocolError), weight=2, takes_effect=True),
    Failing("mail server gone, done", _Is.CONNECTION_LOST, error=smtplib.SMTPServerDisconnected, takes_effect=True),
    Failing("429 with a hint", _Is.RATE_LIMITED, 429, headers={"retry-after": "7"}, weight=3, wait=7),
    Failing("429 with a hint in milliseconds", _Is.RATE_LIMITED, 429, headers={"retry-after-ms": "11500"}, wait=11.5),
    Failing("429 with a hint in its body", _Is.RATE_LIMITED, 429, body=_RETRY_INFO, wait=4.5),
    Failing("429 with a limit used up", _Is.RATE_LIMITED, 429, headers=_USED_UP, wait=6),
    Failing("429 with a hint of a day", _Is.RATE_LIMITED, 429, headers={"retry-after": "86400"}, wait=86_400),
    Failing("429 with a senseless hint", _Is.RATE_LIMITED, 429, headers={"retry-after": "soon"}),
    Failing("throttled", _Is.RATE_LIMITED, 400, body=_code("ThrottlingException")),
    Failing("mail 421", _Is.RATE_LIMITED, error=_mail(smtplib.SMTPConnectError, 421)),
    Failing("mail 451", _Is.RATE_LIMITED, error=_mail(smtplib.SMTPDataError, 451)),
    Failing("mailbox greylisted", _Is.RATE_LIMITED, error=_recipients(450)),
    Failing("503", _Is.OVERLOADED, 503, weight=3),
    Failing("503 until a date", _Is.OVERLOADED, 503, headers=_NINE_SECONDS, wait=9),
    Failing("529", _Is.OVERLOADED, 529),
    Failing("overloaded in a 200", _Is.OVERLOADED, error=lambda: ErrorInStream("overloaded_error")),
    Failing("500", _Is.UPSTREAM_5XX, 500, weight=3),
    Failing("502, done", _Is.UPSTREAM_5XX, 502, weight=2, takes_effect=True),
    *_http(_Is.UPSTREAM_5XX, 501, 505, 520, 521, 522, 523, 524),
    *_http(_Is.CONFLICT, 409, 412, 423, 425),
    Failing("a truncated answer", _Is.BAD_RESPONSE, 200, body='{"effect": "eff', weight=3, takes_effect=True),
    Failing("an answer of another shape", _Is.BAD_RESPONSE, 200, body='{"other": 1}', weight=2, takes_effect=True),
    Failing("an undecodable answer", _Is.BAD_RESPONSE, error=_raises(httpx.DecodingError), takes_effect=True),
    Failing("a database's deadlock", _Is.DB_TRANSIENT, error=asyncpg.DeadlockDetectedError),
    Failing("a database that is locked", _Is.DB_TRANSIENT, error=_locked),
    Failing("a database lost at commit, done", _Is.DB_AMBIGUOUS, error=asyncpg.ConnectionFailureError, takes_effect=True),
    Failing("disk full", _Is.RESOURCE, error=lambda: OSError(errno.ENOSPC, "No space left on device")),
    Failing("no memory", _Is.RESOURCE, error=MemoryError),
    Failing("an odd exception, done", _Is.UNKNOWN, error=Odd, takes_effect=True),
)  # fmt: skip
LASTING: Sequence[Failing] = (
    *_http(_Is.SCHEMA_INVALID, 400, 422),
    *_http(_Is.AUTH_DENIED, 401),
    *_http(_Is.QUOTA_EXHAUSTED, 402),
    *_http(_Is.PERMISSION_DENIED, 403),
    *_http(_Is.NOT_FOUND, 404, 410),
    *_http(_Is.MISCONFIGURED, 407),
    *_http(_Is.TOO_LARGE, 413),
    *_http(_Is.POLICY_REJECTED, 451),
    Failing("quota", _Is.QUOTA_EXHAUSTED, 429, body=_code("insufficient_quota")),
    Failing("context too long", _Is.TOO_LARGE, 400, body=_code("context_length_exceeded")),
    Failing("moderation", _Is.POLICY_REJECTED, 400, body=_code("content_policy_violation")),
    Failing("certificate", _Is.MISCONFIGURED, error=_bad_certificate),
    Failing("no such protocol", _Is.MISCONFIGURED, error=_raises(httpx.UnsupportedProtocol)),
    Failing("a header that cannot be sent", _Is.MISCONFIGURED, error=_raises(httpx.LocalProtocolError)),
    Failing("round in circles", _Is.MISCONFIGURED, error=_raises(httpx.TooManyRedirects)),
    Failing("no address", _Is.MISCONFIGURED, error=lambda: httpx.InvalidURL("http://[")),
    Failing("mail 535", _Is.AUTH_DENIED, error=_mail(smtplib.SMTPAuthenticationError, 535)),
    Failing("mail 552", _Is.TOO_LARGE, error=_mail(smtplib.SMTPDataError, 552)),
    Failing("mail 550", _Is.RECIPIENT_REJECTED, error=_mail(smtplib.SMTPDataError, 550)),
    Failing("no such mailbox", _Is.RECIPIENT_REJECTED, error=_recipients(550)),
    Failing("undecodable audio", _Is.MEDIA_INVALID, error=lambda: wave.Error("file does not start with RIFF id")),
    Failing("a bug of the client", _Is.BUG, error=lambda: AttributeError("'NoneType' has no attribute 'effect'")),
    Failing("a stream read twice", _Is.BUG, error=httpx.StreamConsumed),
    Failing("a client that exits", _Is.BUG, error=SystemExit),
    Failing("a client that cancels itself", _Is.BUG, error=asyncio.CancelledError),
)  # fmt: skip
