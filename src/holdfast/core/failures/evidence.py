"""What can be read from one exception without knowing its library.

An exception is read into *signals*: short words such as `http 429`, `code insufficient_quota`,
`sqlstate 40001` or `httpx.ReadTimeout`, the most specific first. The table in `rules` is looked up by
them. Nothing is imported and nothing is fetched: a body counts only if its client has already read it.
"""

import errno
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.core.failures.retry_after import lowered

_ALIASES = {
    "httpx2": "httpx",
    "httpcore": "httpx",
    "httpcore2": "httpx",
    "aiosmtplib": "smtplib",
    "psycopg2": "psycopg",
}
"""Packages whose exceptions carry the names and the meaning of another's."""

_CLIENTS = {"httpx", "httpx2", "requests", "aiohttp", "openai", "anthropic", "botocore"}
_UNREADABLE = {"json.JSONDecodeError", "pydantic_core.ValidationError"}
_CODE_KEYS = ("code", "error_code", "Code", "type", "status", "name", "reason", "error")
_INNER_KEYS = ("error", "Error", "innererror", "details", "violations")
_REQUEST_ID_HEADERS = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "apim-request-id",
)
_LARGEST_BODY = 65_536
_MOST_LINKS = 20


@dataclass(frozen=True, slots=True)
class Evidence:
    """One exception, read. `status` is what the service answered: an HTTP status or an SMTP code."""

    signals: tuple[str, ...]
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None


def read(error: BaseException) -> Evidence:
    """Return what *error* says about itself; attributes that cannot be read say nothing.

    >>> read(ConnectionResetError(104, "reset by peer")).signals[0]
    'builtins.ConnectionResetError'
    >>> read(OSError(28, "No space left on device")).signals[-1]
    'errno ENOSPC'
    """
    called = tuple(names(type(error)))
    if not isinstance(error, Exception):
        return Evidence(called)

    response = _get(error, "response")
    body = _body(error, response)
    smtp = _smtp_code(error, called)
    status = _status(error, response) if smtp is None else smtp
    signals = (
        *_unreadable_answer(error, called),
        *(f"code {code}" for code in _codes(body)),
        *(_numbered("http", status) if smtp is None else _numbered("smtp", smtp)),
        *(f"type {code}" for code in _codes(body)),
        *_database(error),
        *called,
        *_errno(error),
    )
    return Evidence(signals, status, _headers(error, response), body)


def request_id(error: BaseException) -> str:
    """Return the id that a service gave to the request, by which its operators can find it; empty if there is none.

    >>> error = RuntimeError("no answer")
    >>> error.request_id = "req_1"
    >>> request_id(error)
    'req_1'
    """
    response = _get(error, "response")
    headers = _headers(error, response)
    metadata = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
    found = (
        _get(error, "request_id"),
        *(headers.get(name) for name in _REQUEST_ID_HEADERS),
        metadata.get("RequestId") if isinstance(metadata, Mapping) else None,
    )
    return next((one for one in found if isinstance(one, str) and one), "")


def links(error: BaseException) -> list[BaseException]:
    """Return *error*, then what it came from, then what that came from; members of a group count as causes.

    Each once, and of a long chain the last twenty.
    """
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < _MOST_LINKS:
        link = waiting.pop(0)
        if link is None or any(link is seen for seen in found):
            continue
        found.append(link)
        members = link.exceptions if isinstance(link, BaseExceptionGroup) else ()
        waiting += [*members, link.__cause__, None if link.__suppress_context__ else link.__context__]
    return found


def names(kind: type) -> Iterator[str]:
    """Yield the name of *kind* and of each of its ancestors: top-level package and class.

    >>> list(names(BrokenPipeError))[:2]
    ['builtins.BrokenPipeError', 'builtins.ConnectionError']
    """
    for ancestor in kind.__mro__[:-1]:
        package = str(ancestor.__module__).partition(".")[0]
        yield f"{_ALIASES.get(package, package)}.{ancestor.__qualname__}"


def _get(thing: object, name: str) -> object:
    try:
        return getattr(thing, name)
    except Exception:  # noqa: BLE001 - absent, or a property of a foreign class, which may raise anything
        return None


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _status(error: BaseException, response: object) -> int | None:
    if isinstance(response, Mapping):
        metadata = response.get("ResponseMetadata")
        return _number(metadata.get("HTTPStatusCode")) if isinstance(metadata, Mapping) else None
    # Asked for one by one: aiohttp warns when `code` is touched, and `status` comes first.
    attributes = (
        (response, "status_code"),
        (response, "status"),
        (error, "status_code"),
        (error, "status"),
        (error, "code"),
    )
    found = (_number(_get(thing, name)) for thing, name in attributes)
    return next((status for status in found if status is not None and 100 <= status <= 599), None)


def _headers(error: BaseException, response: object) -> Mapping[str, str]:
    if isinstance(response, Mapping):
        metadata = response.get("ResponseMetadata")
        return lowered(metadata.get("HTTPHeaders")) if isinstance(metadata, Mapping) else {}
    return lowered(_get(response, "headers")) or lowered(_get(error, "headers"))


def _body(error: BaseException, response: object) -> object:
    for candidate in (
        _get(error, "body"),
        response,
        _get(error, "details"),
        _json(_get(response, "_content")),
    ):
        if isinstance(candidate, Mapping | list):
            return candidate
    return None


def _json(content: object) -> object:
    if not isinstance(content, bytes) or len(content) > _LARGEST_BODY:
        return None
    try:
        decoded: object = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return decoded


def _codes(body: object, depth: int = 0) -> Iterator[str]:
    """Yield the codes by which a service names its error, the innermost first.

    Only known places are looked into: some services echo the request, and its values must not be taken for error codes.
    """
    if depth > 5:
        return
    if isinstance(body, list):
        for part in body[:20]:
            yield from _codes(part, depth + 1)
    if not isinstance(body, Mapping):
        return
    for key in _INNER_KEYS:
        yield from _codes(body.get(key), depth + 1)
    yield from (str(body[key]) for key in _CODE_KEYS if isinstance(body.get(key), str))
    if "PerDay" in str(body.get("quotaId")):
        yield "per_day_quota"
    if "credit balance is too low" in str(body.get("message")):
        yield "credit_balance_too_low"


def _numbered(kind: str, number: int | None) -> Iterator[str]:
    if number is not None and 400 <= number <= 599:
        yield f"{kind} {number}"
        yield f"{kind} {number // 100}xx"


def _smtp_code(error: BaseException, called: tuple[str, ...]) -> int | None:
    if "smtplib.SMTPRecipientsRefused" in called:
        return _refused_for_now(_get(error, "recipients"))
    if "smtplib.SMTPResponseException" in called:
        return _number(_get(error, "smtp_code")) or _number(_get(error, "code"))
    return None


def _refused_for_now(recipients: object) -> int | None:
    """Return the code of a recipient worth another try: one such is reason enough to send again."""
    if isinstance(recipients, Mapping):
        codes = [_number(reply[0]) for reply in recipients.values() if isinstance(reply, tuple) and reply]
    elif isinstance(recipients, list):
        codes = [_number(_get(refusal, "code")) for refusal in recipients]
    else:
        codes = []
    return max((code for code in codes if code is not None and 400 <= code <= 499), default=None)


def _database(error: BaseException) -> Iterator[str]:
    state = _get(error, "sqlstate") or _get(error, "pgcode")
    if isinstance(state, str) and re.fullmatch("[0-9A-Z]{5}", state):
        yield f"sqlstate {state}"
        yield f"sqlstate {state[:2]}"
    name = _get(error, "sqlite_errorname")
    if isinstance(name, str):
        yield name
        yield "_".join(name.split("_")[:2])


def _errno(error: BaseException) -> Iterator[str]:
    # The numbers of ssl and of name resolution are not those of the system, although the attribute has the same name.
    number = _get(error, "errno") if isinstance(error, OSError) else None
    if isinstance(number, int) and number in errno.errorcode:
        yield f"errno {errno.errorcode[number]}"


def _unreadable_answer(error: BaseException, called: tuple[str, ...]) -> Iterator[str]:
    """Whether it is a service's broken answer and not a broken payload: it was met inside a client library."""
    if _UNREADABLE.intersection(called) and _CLIENTS.intersection(_traceback_packages(error)):
        yield "answer unreadable"


def _traceback_packages(error: BaseException) -> Iterator[str]:
    frame = error.__traceback__
    while frame is not None:
        yield str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0]
        frame = frame.tb_next
