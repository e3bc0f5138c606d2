"""What is made of an answer: text to go on with, or an exception that says what to make of it.

A status of 400 or more is an `httpx.HTTPStatusError` which carries the headers and as much of the body as the
classifier looks at. What was answered with success and is of no use is a `BadResponse`. No message quotes a body:
services echo what they were sent.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from holdfast.core.errors import BadResponse, Permanent
from holdfast.core.failures.classifier import Classifier
from holdfast.core.failures.failure import ErrorClass

Shape = TypeVar("Shape", bound=BaseModel)

_LARGEST_ERROR = 65_536  # what the classifier reads of a body
_CODE = re.compile(r"[\w.-]{1,64}", re.ASCII)
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)


async def text_of(response: httpx.Response, *, max_bytes: int) -> bytes:
    """Read the JSON text of a successful answer, empty if there is none. No more than *max_bytes* are read.

    Raises `httpx.HTTPStatusError`, `BadResponse`, or `Permanent` for an answer that points elsewhere.
    """
    if response.status_code >= HTTPStatus.BAD_REQUEST:
        raise status_error(response, await _beginning_of_error(response))
    if not response.is_success:
        raise Permanent(
            f"{told(response)} and points elsewhere; redirects are not followed: correct the address",
            error_class=ErrorClass.MISCONFIGURED,
        )
    if _is_empty(response):
        return b""
    _ensure_json(response)
    if _announced(response) > max_bytes:
        raise _too_long(response, max_bytes)
    text = await _beginning(response, max_bytes + 1)
    if len(text) > max_bytes:
        raise _too_long(response, max_bytes)
    return text


def ensure_result(text: bytes, response: httpx.Response) -> None:
    """Raise an answer that holds an error instead of a result as what that error says.

    Raises `BadResponse` for what is no strict JSON, and for an error that nobody knows.
    """
    try:
        value: object = from_json(text, allow_inf_nan=False)
    except ValueError:
        raise BadResponse(f"{told(response)} with something that is no JSON") from None
    error = value.get("error") if isinstance(value, Mapping) else None
    if error and isinstance(error, Mapping):
        raise _meant(error, text, response)


def fitted(shape: type[Shape], text: bytes | str, *, what: str) -> Shape:
    """Check *text* against a model of pydantic. Raises `BadResponse`, which tells the places and no values."""
    try:
        from_json(text, allow_inf_nan=False)
        return shape.model_validate_json(text)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'all of it'}: {one['msg']}"
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise BadResponse(f"{what} does not fit {shape.__name__}: {wrong}") from None
    except ValueError:
        raise BadResponse(f"{what} is no JSON") from None


def status_error(
    response: httpx.Response, content: bytes, *, status: int | None = None
) -> httpx.HTTPStatusError:
    """Make the exception for an answer whose *content* has been read, with nothing of the request but its address."""
    request = httpx.Request(response.request.method, shown(response.request.url))
    kept = {name: text for name, text in response.headers.items() if name not in _ABOUT_THE_WIRE}
    told_by = httpx.Response(status or response.status_code, headers=kept, content=content, request=request)
    code = _code(content)
    message = told(response) + (f" ({code})" if code else "")
    return httpx.HTTPStatusError(message, request=request, response=told_by)


_ABOUT_THE_WIRE = ("content-encoding", "content-length", "transfer-encoding", "set-cookie")


def shown(url: httpx.URL) -> str:
    """Write an address for people: without user, password and query.

    >>> shown(httpx.URL("https://ada:secret@llm.example/v1?token=x"))
    'https://llm.example/v1'
    """
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def told(response: httpx.Response) -> str:
    """Say who answered, and with which status."""
    return f"{shown(response.request.url)} answered {response.status_code}"


def _meant(error: Mapping[str, object], text: bytes, response: httpx.Response) -> Exception:
    number = error.get("code")
    status = number if isinstance(number, int) and 400 <= number <= 599 else None
    meant = status_error(response, text[:_LARGEST_ERROR], status=status)
    if Classifier().judge(meant).failure.error_class is not ErrorClass.UNKNOWN:
        return meant
    return BadResponse(f"{told(response)} with an error inside that nobody knows")


def _is_empty(response: httpx.Response) -> bool:
    return response.status_code == HTTPStatus.NO_CONTENT or response.headers.get("content-length") == "0"


def _ensure_json(response: httpx.Response) -> None:
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if not _JSON.fullmatch(kind):
        raise BadResponse(f"{told(response)} with {kind[:80] or 'no content type'} instead of JSON")
    if _is_compressed(response):
        raise BadResponse(f"{told(response)} with a compressed body, which was not asked for")


def _is_compressed(response: httpx.Response) -> bool:
    encoding: str = response.headers.get("content-encoding", "identity")
    return encoding.strip().lower() != "identity"


def _announced(response: httpx.Response) -> int:
    length = response.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else 0


def _too_long(response: httpx.Response, max_bytes: int) -> BadResponse:
    return BadResponse(f"{told(response)} with more than {max_bytes:,} bytes, and was not read to the end")


async def _beginning(response: httpx.Response, most: int) -> bytes:
    """Read up to *most* bytes. What is compressed is not unpacked: little of it can be very much."""
    read = bytearray()
    if not _is_compressed(response):
        async for part in response.aiter_bytes():
            read += part
            if len(read) >= most:
                break
    return bytes(read[:most])


async def _beginning_of_error(response: httpx.Response) -> bytes:
    """Read what the classifier wants to see. A body that breaks off takes nothing from what the head has told."""
    try:
        return await _beginning(response, _LARGEST_ERROR)
    except httpx.TransportError:
        return b""


def _code(content: bytes) -> str | None:
    """Find the word by which a service names its error, in the place where most of them put it."""
    try:
        value = from_json(content)
    except ValueError:
        return None
    error = value.get("error") if isinstance(value, Mapping) else None
    words = (error.get("code"), error.get("type")) if isinstance(error, Mapping) else ()
    return next((word for word in words if isinstance(word, str) and _CODE.fullmatch(word)), None)
