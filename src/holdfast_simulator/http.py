"""The subset of HTTP/1.1 that the provider needs, over raw streams."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 64 * 1024 * 1024

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

_HEAD_END = b"\r\n\r\n"
_REASONS = {status.value: status.phrase for status in HTTPStatus}


class RequestError(Exception):
    """The bytes on the connection are not a valid request; the connection must be closed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """Request line and headers. Header names are in lower case; of a repeated header the last value counts."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    keeps_alive: bool

    @property
    def route(self) -> str:
        """Method and path, the form used by rules and the log."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response to send: either a body, or events that are sent as chunks."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    events: tuple[bytes, ...] = ()


class Wire(NamedTuple):
    """An answer as bytes, split where its body begins."""

    head: bytes
    payload: bytes


def json_answer(status: int, value: object, **headers: str) -> Answer:
    """Build an answer with a JSON body; underscores in header names become dashes."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status, json.dumps(value).encode(), headers=named)


def error_answer(status: int, code: str, message: str) -> Answer:
    """Build an error in the format that most providers use."""
    return json_answer(status, {"error": {"type": code, "code": code, "message": message}})


def events_answer(*events: bytes) -> Answer:
    """Build a 200 that streams server-sent events."""
    return Answer(200, content_type=EVENT_STREAM, events=events)


def event(value: Any, *, name: str | None = None) -> bytes:
    """Encode one server-sent event; a string is sent unchanged, any other value as JSON."""
    data = value if isinstance(value, str) else json.dumps(value)
    prefix = f"event: {name}\n" if name else ""
    return f"{prefix}data: {data}\n\n".encode()


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Read up to the end of the headers; return None if the client has disconnected.

    Raises `RequestError` if the bytes are not an HTTP/1 request.
    """
    try:
        raw = await reader.readuntil(_HEAD_END)
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        raise RequestError(431, f"the headers are longer than {HEAD_LIMIT} bytes") from error
    return parse_head(raw)


def parse_head(raw: bytes) -> Head:
    """Parse a request line and headers, including the final empty line."""
    first, *lines = raw[:-4].decode("latin-1").lstrip("\r\n").split("\r\n")
    try:
        method, target, version = first.split(" ")
    except ValueError as error:
        raise RequestError(400, "the first line is not an HTTP request line") from error
    if version not in {"HTTP/1.1", "HTTP/1.0"}:
        raise RequestError(505, "only HTTP/1.0 and HTTP/1.1 are supported")
    headers = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not name or name != name.strip():
            raise RequestError(400, "a header line has no name")
        headers[name.lower()] = text.strip()
    path, _, query = target.partition("?")
    return Head(method, path, query, headers, keeps_alive=_keeps_alive(version, headers))


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """Read the body that the headers announce. Raises `RequestError`, or `IncompleteReadError`."""
    if "transfer-encoding" in head.headers:
        if head.headers["transfer-encoding"].lower() != "chunked":
            raise RequestError(501, "the only supported transfer encoding is chunked")
        return await _read_chunks(reader)
    length = _parse_size(head.headers.get("content-length", "0"), base=10)
    return await reader.readexactly(length) if length else b""


def to_wire(answer: Answer, *, keeps_alive: bool, with_body: bool = True) -> Wire:
    """Encode an answer as bytes. A `Date` header of the answer replaces the current date."""
    lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Unknown')}"]
    if "Date" not in answer.headers:
        lines.append(_date_line(int(time.time())))
    lines.append(f"Content-Type: {answer.content_type}")
    if answer.events:
        lines.append("Transfer-Encoding: chunked")
    else:
        lines.append(f"Content-Length: {len(answer.body)}")
    if not keeps_alive:
        lines.append("Connection: close")
    lines.extend(f"{name}: {text}" for name, text in answer.headers.items())
    payload = (_chunks(answer.events) if answer.events else answer.body) if with_body else b""
    return Wire("\r\n".join(lines).encode() + _HEAD_END, payload)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := _parse_size((await _read_line(reader)).partition(";")[0], base=16):
        body += await reader.readexactly(size)
        if len(body) > BODY_LIMIT:
            raise RequestError(413, f"the body is longer than {BODY_LIMIT} bytes")
        if await reader.readexactly(2) != b"\r\n":
            raise RequestError(400, "a chunk does not have the announced length")
    while await _read_line(reader):
        pass  # trailers are ignored
    return bytes(body)


async def _read_line(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n"))[:-2].decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise RequestError(400, "a line of a chunked body is too long") from error


def _parse_size(text: str, *, base: int) -> int:
    digits = text.strip()
    if not digits.isascii() or not digits.isalnum() or len(digits) > 20:
        raise RequestError(400, "the length of the body is not a number")
    try:
        size = int(digits, base)
    except ValueError as error:
        raise RequestError(400, "the length of the body is not a number") from error
    if size > BODY_LIMIT:
        raise RequestError(413, f"the body is longer than {BODY_LIMIT} bytes")
    return size


def _keeps_alive(version: str, headers: Mapping[str, str]) -> bool:
    option = headers.get("connection", "").lower()
    return "close" not in option if version == "HTTP/1.1" else "keep-alive" in option


def _chunks(events: tuple[bytes, ...]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in events) + b"0\r\n\r\n"


@lru_cache(maxsize=2)
def _date_line(second: int) -> str:
    return f"Date: {formatdate(second, usegmt=True)}"
