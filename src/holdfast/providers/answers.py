"""Answers of services: read and validated, or raised as an exception that the classifier understands.

A status of 400 or more is an `httpx.HTTPStatusError` with the headers and as much of the body as the classifier
reads. A successful answer with an unusable body is a `BadResponse`. No message quotes a body: services echo what
they were sent.
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

_MAX_ERROR_BYTES = 65_536  # what the classifier reads of a body
_CODE = re.compile(r"[\w.-]{1,64}", re.ASCII)
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)


async def read_text(response: httpx.Response, *, max_bytes: int) -> bytes:
    """Read the JSON text of a successful answer, empty if there is none. Reads at most *max_bytes*.

    Raises `httpx.HTTPStatusError`, `BadResponse`, or `Permanent` for a redirect.
    """
    if response.status_code >= HTTPStatus.BAD_REQUEST:
        raise status_error(response, await _read_error(response))
    if not response.is_success:
        raise Permanent(
            f"{summary(response)}; redirects are not followed: correct the address",
            error_class=ErrorClass.MISCONFIGURED,
        )
    length = response.headers.get("content-length", "")
    if response.status_code == HTTPStatus.NO_CONTENT or length == "0":
        return b""
    _ensure_json(response)
    if length.isascii() and length.isdigit() and int(length) > max_bytes:
        raise _too_long(response, max_bytes)
    text = await _read_at_most(response, max_bytes + 1)
    if len(text) > max_bytes:
        raise _too_long(response, max_bytes)
    return text


def ensure_result(text: bytes, response: httpx.Response) -> None:
    """Raise if the JSON of a successful answer holds an error instead of a result.

    Raises the error as `httpx.HTTPStatusError` if the classifier knows it, otherwise `BadResponse`; also `BadResponse`
    if the text is not strict JSON.
    """
    try:
        value: object = from_json(text, allow_inf_nan=False)
    except ValueError:
        raise BadResponse(f"{summary(response)} with a body that is not JSON") from None
    error = value.get("error") if isinstance(value, Mapping) else None
    if error and isinstance(error, Mapping):
        raise _reported_error(error, text, response)


def validate(shape: type[Shape], text: bytes | str, *, what: str) -> Shape:
    """Validate *text* against a pydantic model. Raises `BadResponse`, which names the fields and no values."""
    try:
        from_json(text, allow_inf_nan=False)
        return shape.model_validate_json(text)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {each['msg']}"
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise BadResponse(f"{what} does not match {shape.__name__}: {wrong}") from None
    except ValueError:
        raise BadResponse(f"{what} is not JSON") from None


def status_error(
    response: httpx.Response, content: bytes, *, status: int | None = None
) -> httpx.HTTPStatusError:
    """Return the exception for an answer whose *content* has been read; of the request it has only the address."""
    request = httpx.Request(response.request.method, public_url(response.request.url))
    headers = {name: text for name, text in response.headers.items() if name not in _TRANSFER_HEADERS}
    read = httpx.Response(status or response.status_code, headers=headers, content=content, request=request)
    code = _error_code(content)
    message = summary(response) + (f" ({code})" if code else "")
    return httpx.HTTPStatusError(message, request=request, response=read)


_TRANSFER_HEADERS = ("content-encoding", "content-length", "transfer-encoding", "set-cookie")


def public_url(url: httpx.URL) -> str:
    """Return an address without its secrets: user, password and query.

    >>> public_url(httpx.URL("https://ada:secret@llm.example/v1?token=x"))
    'https://llm.example/v1'
    """
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def summary(response: httpx.Response) -> str:
    """Return the address and the status of an answer, for messages."""
    return f"{public_url(response.request.url)} answered {response.status_code}"


def _reported_error(error: Mapping[str, object], text: bytes, response: httpx.Response) -> Exception:
    number = error.get("code")
    status = number if isinstance(number, int) and 400 <= number <= 599 else None
    reported = status_error(response, text[:_MAX_ERROR_BYTES], status=status)
    if Classifier().classify_without_text(reported).failure.error_class is not ErrorClass.UNKNOWN:
        return reported
    return BadResponse(f"{summary(response)} with an unknown error in the body")


def _ensure_json(response: httpx.Response) -> None:
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if not _JSON.fullmatch(kind):
        raise BadResponse(f"{summary(response)} with {kind[:80] or 'no content type'} instead of JSON")
    if _is_compressed(response):
        raise BadResponse(f"{summary(response)} with a compressed body, which was not requested")


def _is_compressed(response: httpx.Response) -> bool:
    encoding: str = response.headers.get("content-encoding", "identity")
    return encoding.strip().lower() != "identity"


def _too_long(response: httpx.Response, max_bytes: int) -> BadResponse:
    return BadResponse(f"{summary(response)} with more than {max_bytes:,} bytes, and was not read to the end")


async def _read_at_most(response: httpx.Response, limit: int) -> bytes:
    """Read up to *limit* bytes. A compressed body is not read: a few bytes of it can expand to very many."""
    read = bytearray()
    if not _is_compressed(response):
        async for chunk in response.aiter_bytes():
            read += chunk
            if len(read) >= limit:
                break
    return bytes(read[:limit])


async def _read_error(response: httpx.Response) -> bytes:
    """Read the part of an error's body that the classifier reads; if it breaks off, status and headers remain."""
    try:
        return await _read_at_most(response, _MAX_ERROR_BYTES)
    except httpx.TransportError:
        return b""


def _error_code(content: bytes) -> str | None:
    """Return the error code of a service, from the field that most services use."""
    try:
        value = from_json(content)
    except ValueError:
        return None
    error = value.get("error") if isinstance(value, Mapping) else None
    words = (error.get("code"), error.get("type")) if isinstance(error, Mapping) else ()
    return next((word for word in words if isinstance(word, str) and _CODE.fullmatch(word)), None)
