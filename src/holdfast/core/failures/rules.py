"""The table of failures: which signal means which class.

Each line gives a class and the signals that mean it (see `evidence` for how they are spelled). What a class
means for retries, second sends and breakers is defined once, in `failures.MEANINGS`; a line that departs
from it states that.

An exception is looked up by its signals in their order, its own class before the ancestors. A line that
*wraps* applies only if nothing beneath the exception is known: an SDK's "connection error" is less specific than the
exception that caused it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from holdfast.core.durations import Duration, duration
from holdfast.core.failures.evidence import names
from holdfast.core.failures.failure import ErrorClass, Failure, PublicCode, Scope, Sent, Verdict

Subject = str | type[BaseException] | Callable[[BaseException], bool]
"""What a user's rule is about: a class, the name of one, or a predicate."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one signal means. What is None is left to the meaning of the class."""

    subject: Subject
    error_class: ErrorClass
    code: PublicCode | None = None
    retryable: bool | None = None
    sent: Sent | None = None
    scope: Scope | None = None
    verdict: Verdict | None = None
    wait: timedelta | None = None
    retries: int | None = None
    wraps: bool = False

    def fits(self, error: BaseException) -> bool:
        """Return whether this rule matches *error*. Raises what a user's predicate raises."""
        if isinstance(self.subject, str):
            return self.subject in _spellings(type(error))
        if isinstance(self.subject, type):
            return isinstance(error, self.subject)
        return bool(self.subject(error))

    def as_failure(self) -> Failure:
        """Return the meaning of the class with this rule's departures; the classifier adds message and stack."""
        plain = Failure.of(self.error_class, "")
        return replace(
            plain,
            code=plain.code if self.code is None else self.code,
            retryable=plain.retryable if self.retryable is None else self.retryable,
            sent=plain.sent if self.sent is None else self.sent,
            scope=plain.scope if self.scope is None else self.scope,
            verdict=plain.verdict if self.verdict is None else self.verdict,
            wait=self.wait,
            retries=plain.retries if self.retries is None else self.retries,
        )


def rule(
    subject: Subject,
    *,
    error_class: ErrorClass = ErrorClass.UNKNOWN,
    code: PublicCode | None = None,
    retryable: bool | None = None,
    sent: Sent | None = None,
    scope: Scope | None = None,
    verdict: Verdict | None = None,
    wait: Duration | None = None,
    retries: int | None = None,
) -> Rule:
    """Make a rule for an exception of the application.

    *subject* is the class, its name with or without the inner modules, or a predicate that returns whether an
    exception matches. What is not given follows from *error_class*. Raises `TypeError` for another subject.

    >>> rule("shop.OutOfStock", error_class=ErrorClass.CONFLICT, wait="5m").as_failure().wait
    datetime.timedelta(seconds=300)
    """
    if not callable(subject) and not isinstance(subject, str):
        raise TypeError(f"A rule is about a class, its name or a predicate, not {subject!r}")
    if isinstance(subject, type) and not issubclass(subject, BaseException):
        raise TypeError(f"A rule is about an exception, and {subject.__name__} is not one")
    waits = None if wait is None else duration(wait)
    return Rule(subject, error_class, code, retryable, sent, scope, verdict, waits, retries)


def _spellings(kind: type) -> set[str]:
    modules = ((str(ancestor.__module__), ancestor.__qualname__) for ancestor in kind.__mro__)
    written = {
        f"{package}.{name}" for module, name in modules for package in (module, module.partition(".")[0])
    }
    return written.union(names(kind))


def _http(*statuses: int) -> Iterator[str]:
    return (f"http {status}" for status in statuses)


def _codes(words: str) -> Iterator[str]:
    return (f"code {word}" for word in words.split())


def _sqlstates(words: str) -> Iterator[str]:
    return (f"sqlstate {word}" for word in words.split())


def _smtp(*codes: int) -> Iterator[str]:
    return (f"smtp {code}" for code in codes)


def _errno(words: str) -> Iterator[str]:
    return (f"errno {word}" for word in words.split())


def _of(package: str, words: str) -> Iterator[str]:
    return (f"{package}.{word}" for word in words.split())


def _line(error_class: ErrorClass, *signals: str, **departures: Any) -> Iterator[Rule]:
    return (Rule(signal, error_class, **departures) for signal in signals)


RULES: tuple[Rule, ...] = (
    # The request never left.
    *_line(
        ErrorClass.CONNECT_FAILED,
        *_of("httpx", "ConnectError ConnectTimeout ProxyError"),
        *_of("aiohttp", "ClientConnectorError ConnectionTimeoutError"),
        *_of("requests", "ConnectTimeout ProxyError"),
        *_of("urllib3", "NewConnectionError ConnectTimeoutError ProxyError"),
        *_of("botocore", "EndpointConnectionError ConnectTimeoutError ProxyConnectionError"),
        *_of("builtins", "ConnectionRefusedError"),
        *_of("socket", "gaierror herror"),
        *_errno("ECONNREFUSED EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN EADDRNOTAVAIL"),
    ),
    *_line(ErrorClass.CONNECT_FAILED, "urllib.URLError", wraps=True),
    *_line(
        ErrorClass.POOL_EXHAUSTED, "httpx.PoolTimeout", "urllib3.EmptyPoolError", "sqlalchemy.TimeoutError"
    ),
    # The request left, and no answer came back.
    *_line(
        ErrorClass.NETWORK_TIMEOUT,
        *_http(408, 504),
        *_codes("timeout_error"),
        *_of("httpx", "ReadTimeout WriteTimeout TimeoutException"),
        *_of("aiohttp", "SocketTimeoutError ServerTimeoutError"),
        *_of("requests", "ReadTimeout Timeout"),
        *_of("urllib3", "ReadTimeoutError"),
        *_of("botocore", "ReadTimeoutError"),
        *_of("billiard", "SoftTimeLimitExceeded"),
        *_of("builtins", "TimeoutError"),
        *_errno("ETIMEDOUT"),
    ),
    *_line(ErrorClass.NETWORK_TIMEOUT, "openai.APITimeoutError", "anthropic.APITimeoutError", wraps=True),
    *_line(
        ErrorClass.CONNECTION_LOST,
        *_of("httpx", "ReadError WriteError CloseError RemoteProtocolError NetworkError"),
        *_of(
            "aiohttp", "ServerDisconnectedError ClientPayloadError ClientConnectionError UploadAbortedError"
        ),
        *_of("requests", "ChunkedEncodingError"),
        *_of("urllib3", "ProtocolError IncompleteRead"),
        *_of("http", "IncompleteRead BadStatusLine"),
        *_of("botocore", "ConnectionClosedError"),
        *_of("smtplib", "SMTPServerDisconnected"),
        *_of("ssl", "SSLError"),
        *_of("asyncio", "IncompleteReadError"),
        *_of("openai", "WebSocketConnectionClosedError"),
        *_of("holdfast", "BrokerUnavailable RouteFull"),
        *_of("builtins", "ConnectionError"),
        *_errno("ECONNRESET ECONNABORTED EPIPE ESHUTDOWN ENOTCONN"),
    ),
    *_line(
        ErrorClass.CONNECTION_LOST,
        *_of("openai", "APIConnectionError"),
        *_of("anthropic", "APIConnectionError"),
        *_of("requests", "ConnectionError SSLError"),
        *_of("urllib3", "MaxRetryError SSLError"),
        wraps=True,
    ),
    # A wrong address or a malformed request: every job of the provider fails the same.
    *_line(
        ErrorClass.MISCONFIGURED,
        *_http(407),
        *_of("httpx", "InvalidURL UnsupportedProtocol LocalProtocolError TooManyRedirects"),
        *_of("aiohttp", "InvalidURL NonHttpUrlClientError TooManyRedirects"),
        *_of("aiohttp", "ClientConnectorCertificateError ServerFingerprintMismatch"),
        *_of("requests", "InvalidURL MissingSchema InvalidSchema InvalidHeader URLRequired TooManyRedirects"),
        *_of("urllib3", "LocationValueError"),
        *_of("http", "InvalidURL"),
        *_of("ssl", "SSLCertVerificationError"),
        *_of("smtplib", "SMTPNotSupportedError"),
        *_of("openai", "OpenAIError"),
    ),
    # A rate limit, or an exhausted quota.
    *_line(
        ErrorClass.RATE_LIMITED,
        *_http(429),
        *_smtp(421),
        *_codes("rate_limit_exceeded rate_limit_error"),
        *_codes(
            "Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException"
        ),
        *_codes("TooManyRequestsException ProvisionedThroughputExceededException RequestLimitExceeded"),
        *_codes("BandwidthLimitExceeded LimitExceededException SlowDown PriorRequestNotComplete"),
        *_codes("EC2ThrottledException TransactionInProgressException"),
    ),
    *_line(
        ErrorClass.RATE_LIMITED,
        *_smtp(450, 451, 452),
        "smtp 4xx",
        scope=Scope.JOB,  # one mailbox says nothing about its provider
        verdict=Verdict.IGNORE,
    ),
    *_line(
        ErrorClass.QUOTA_EXHAUSTED,
        *_http(402),
        *_codes("insufficient_quota billing_hard_limit_reached billing_not_active billing_error"),
        *_codes("spend_limit_exceeded spend_limit_reached credit_balance_too_low per_day_quota"),
        *_codes("ServiceQuotaExceededException daily_quota_exceeded monthly_quota_exceeded"),
    ),
    # The service is overloaded or failing.
    *_line(
        ErrorClass.OVERLOADED,
        *_http(503, 529),
        *_codes("overloaded_error overloaded engine_overloaded slow_down UNAVAILABLE"),
    ),
    *_line(
        ErrorClass.UPSTREAM_5XX,
        *_http(500, 501, 502, 505, 520, 521, 522, 523, 524),
        "http 5xx",
        *_codes("internal_error internal_server_error server_error api_error INTERNAL InternalFailure"),
        *_of("requests", "RetryError"),
        *_of("urllib3", "ResponseError"),
        *_of("openai", "APIError"),
        *_of("anthropic", "APIError"),
    ),
    *_line(
        ErrorClass.CONFLICT,
        *_http(409, 412, 423, 425),
        *_sqlstates("23505 23P01"),
        *_of("sqlalchemy", "StaleDataError"),
        "SQLITE_CONSTRAINT_UNIQUE",
        "SQLITE_CONSTRAINT_PRIMARYKEY",
    ),
    # The service understood the request, and refuses it.
    *_line(
        ErrorClass.AUTH_DENIED,
        *_http(401),
        *_smtp(530, 534, 535, 538),
        *_codes(
            "authentication_error invalid_api_key ExpiredToken ExpiredTokenException InvalidClientTokenId"
        ),
        *_of("anthropic", "CredentialsError"),
        *_of("botocore", "NoCredentialsError"),
        *_of("smtplib", "SMTPAuthenticationError"),
    ),
    *_line(ErrorClass.PERMISSION_DENIED, *_http(403), *_codes("permission_error"), *_sqlstates("42501")),
    *_line(
        ErrorClass.NOT_FOUND,
        *_http(404, 410),
        *_codes("not_found_error"),
        *_of("holdfast", "JobNotFound MessageNotFound ArchiveMissing"),
    ),
    *_line(
        ErrorClass.SCHEMA_INVALID,
        *_http(400, 422),
        "http 4xx",
        "type invalid_request_error",
        *_sqlstates("22 23"),
        "SQLITE_CONSTRAINT",
        "SQLITE_MISMATCH",
        *_of("pydantic_core", "ValidationError"),
        *_of("json", "JSONDecodeError"),
        *_of("jsonschema", "ValidationError"),
        *_of("marshmallow", "ValidationError"),
        *_of("requests", "InvalidJSONError"),
        *_of("asyncpg", "DataError"),
        *_of("holdfast", "PayloadInvalid MessageRefused"),
    ),
    *_line(
        ErrorClass.TOO_LARGE,
        *_http(413),
        *_smtp(523, 552),
        *_codes("context_length_exceeded request_too_large string_above_max_length"),
        *_of("holdfast", "PayloadTooLarge"),
    ),
    *_line(
        ErrorClass.POLICY_REJECTED,
        *_http(451),
        *_codes("content_policy_violation content_policy content_filter moderation_blocked policy_violation"),
        *_codes("ResponsibleAIPolicyViolation"),
        *_of("openai", "ContentFilterFinishReasonError"),
    ),
    *_line(ErrorClass.RECIPIENT_REJECTED, "smtplib.SMTPRecipientsRefused", "smtp 5xx"),
    # It answered, but the answer cannot be used.
    *_line(
        ErrorClass.BAD_RESPONSE,
        "answer unreadable",
        *_of("requests", "JSONDecodeError ContentDecodingError"),
        *_of("urllib3", "DecodeError"),
        *_of("httpx", "DecodingError"),
        *_of("aiohttp", "ContentTypeError"),
        *_of("openai", "APIResponseValidationError LengthFinishReasonError"),
        *_of("anthropic", "APIResponseValidationError"),
    ),
    # The file is not what it should be.
    *_line(
        ErrorClass.MEDIA_INVALID,
        *_of("av", "InvalidDataError"),
        *_of("PIL", "UnidentifiedImageError"),
        *_of("soundfile", "LibsndfileError"),
        *_of("wave", "Error"),
    ),
    *_line(
        ErrorClass.MEDIA_INVALID,
        "pypdfium2.PdfiumError",
        "pdfminer.PDFSyntaxError",
        code=PublicCode.NOT_PDF,
    ),
    # The database: safe to repeat, or perhaps already done.
    *_line(
        ErrorClass.DB_TRANSIENT,
        *_sqlstates("40 55P03 53 57P01 57P02 57P03 57014 08001 08004 25006"),
        *_of("asyncpg", "InterfaceError"),
        "SQLITE_BUSY",
        "SQLITE_LOCKED",
        *_of("holdfast", "StoreReadOnly"),
    ),
    *_line(
        ErrorClass.DB_AMBIGUOUS,
        *_sqlstates("08 40003"),
        "psycopg.OperationalError",
        "holdfast.StoreUnavailable",
    ),
    # This machine.
    *_line(
        ErrorClass.RESOURCE,
        *_of("holdfast", "ArchiveUnavailable"),
        *_errno("ENOSPC EDQUOT EIO ENOMEM EMFILE ENFILE"),
        *_of("builtins", "MemoryError"),
        "SQLITE_FULL",
        "SQLITE_IOERR",
        "SQLITE_NOMEM",
    ),
    # The code: a process that is asked to end by its own handler is one of its bugs.
    *_line(
        ErrorClass.BUG,
        *_of("builtins", "TypeError KeyError IndexError AttributeError NameError AssertionError"),
        *_of("builtins", "NotImplementedError ImportError SyntaxError ZeroDivisionError RecursionError"),
        *_of("builtins", "SystemExit KeyboardInterrupt GeneratorExit"),
        *_of("asyncio", "CancelledError"),
        *_of("concurrent", "CancelledError"),
        *_of("httpx", "StreamError"),
        *_of("sqlite3", "ProgrammingError"),
        *_sqlstates("42"),
    ),
    *_line(ErrorClass.STAGE_MISMATCH, "holdfast.StageMismatch"),
    # What a handler meets when it uses this library itself.
    *_line(
        ErrorClass.CONFLICT,
        *_of("holdfast", "KeyReused VersionRefused StateRefused JobCancelled ArchiveDamaged"),
        retryable=False,
    ),
    *_line(ErrorClass.NETWORK_TIMEOUT, "holdfast.ResultTimeout", verdict=Verdict.IGNORE),
    *_line(ErrorClass.TIMEOUT, "holdfast.SignalTimeout"),
    *_line(
        ErrorClass.MISCONFIGURED,
        *_of("holdfast", "ConfigError WithinUnsupported SchemaError RouteRefused"),
        *_of("asyncpg", "ClientConfigurationError"),
        *_sqlstates("28 3D 3F"),
        scope=Scope.NONE,
    ),
)

TABLE: Mapping[str, Rule] = {str(line.subject): line for line in RULES}
"""The same lines, by their signal."""
