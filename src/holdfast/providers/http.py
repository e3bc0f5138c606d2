"""The base of the ready clients: one request for each call, limits on time and size, a key, no secrets in messages."""

import asyncio
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Self, TypedDict
from urllib.parse import quote

import httpx

from holdfast.app.current import current
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError, Permanent
from holdfast.core.failures.failure import ErrorClass
from holdfast.engine.execution.context import CURRENT
from holdfast.providers.answers import ensure_result, public_url, read_text
from holdfast.providers.per_loop import PerLoop, certificates

MAX_BYTES = 10_000_000
MAX_CONNECT_SECONDS = 10.0
IDEMPOTENCY_HEADER = "Idempotency-Key"


_SAFE_IN_PATH = "/:@!$&'()*+,;=%"  # % because a path may be quoted already

Query = Mapping[str, str | int | float | bool]


class Options(TypedDict, total=False):
    """The options of every client; `HttpClient` describes them."""

    api_key: str | None
    timeout: Duration
    max_bytes: int
    headers: Mapping[str, str] | None
    idempotency_header: str | None
    transport: httpx.AsyncBaseTransport | None


class HttpClient:
    """A service at an address. It may be created at import: it connects at the first call.

    *api_key* is sent as a bearer token. *timeout* bounds a complete call, from the connection to the last byte.
    *max_bytes* bounds an answer. In a job, *idempotency_header* carries `current().key`; None sends no key.
    *transport* replaces the network: pass `ScriptedProvider.transport()` in a test.

    `async with` closes the connections of the running event loop at its end, as `aclose` does.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: Duration = 60,
        max_bytes: int = MAX_BYTES,
        headers: Mapping[str, str] | None = None,
        idempotency_header: str | None = IDEMPOTENCY_HEADER,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        address = _address(url)
        if api_key is not None and address.userinfo:
            raise ConfigError("give either api_key= or a user in the address, not both")
        self._url = address.copy_with(userinfo=b"")
        self._auth = httpx.BasicAuth(address.username, address.password) if address.userinfo else None
        self._headers = _headers(headers or {}, api_key)
        self._seconds = _seconds(timeout)
        self._max_bytes = max_bytes
        self._idempotency_header = idempotency_header
        self._transport = transport
        self._clients = PerLoop(self._new_client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({public_url(self._url)!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that the running event loop has open; the next call opens new ones."""
        await self._clients.close()

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        idempotency_key: str | None = None,
        **content: Any,
    ) -> bytes:
        """Send one request, and return the JSON text of its answer, empty if there is none. Raises what it reports."""
        url = self._build_url(path, query or {})
        headers = self._key_header(idempotency_key) if method != "GET" else {}
        request = self._clients.here().stream(method, url, headers=headers, **content)
        try:
            async with asyncio.timeout(self._seconds), request as response:
                text = await read_text(response, max_bytes=self._max_bytes)
        except TimeoutError:
            raise TimeoutError(
                f"{public_url(url)} did not answer completely within {self._seconds:g} s"
            ) from None
        if text:
            ensure_result(text, response)
        return text

    def _build_url(self, path: str, query: Query) -> httpx.URL:
        """Return the address of *path*, which cannot start a query; a query of the client's own address is kept."""
        if ".." in path.split("/"):
            raise Permanent("the path of a call must not contain '..'", error_class=ErrorClass.SCHEMA_INVALID)
        below = f"{self._url.path.rstrip('/')}/{quote(path.lstrip('/'), safe=_SAFE_IN_PATH)}"
        return self._url.copy_with(path=below).copy_merge_params(query)

    def _key_header(self, given: str | None) -> dict[str, str]:
        key = _key_of_job() if given is None else given
        if key is None or self._idempotency_header is None:
            return {}
        return {self._idempotency_header: _ensure_header_value("the idempotency key", key)}

    def _new_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=self._headers,
            auth=self._auth,
            # No cookies: the next call may be for another customer.
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            timeout=httpx.Timeout(self._seconds, connect=min(self._seconds / 2, MAX_CONNECT_SECONDS)),
            # Workers and providers limit the number of concurrent calls, not the connection pool.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            follow_redirects=False,
            verify=certificates(),
            transport=self._transport,
        )


def _key_of_job() -> str | None:
    return None if CURRENT.get() is None else current().key


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise ConfigError("this is not an address; write for example https://llm.example/v1") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise ConfigError(
            f"{public_url(address)!r} is not an address; write for example https://llm.example/v1"
        )
    return address


def _headers(given: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    """Return the headers of every request. Answers are requested uncompressed, so that their size is bounded."""
    bearer = (
        {} if api_key is None else {"Authorization": f"Bearer {_ensure_header_value('api_key=', api_key)}"}
    )
    own = {name: _ensure_header_value(f"the header {name}", text) for name, text in given.items()}
    return {"Accept": "application/json", "Accept-Encoding": "identity", **bearer, **own}


def _ensure_header_value(what: str, text: str) -> str:
    """Refuse invalid header values here: an exception of the HTTP library would quote them."""
    if text and text == text.strip() and text.isascii() and text.isprintable():
        return text
    raise ConfigError(f"{what} must be printable ASCII, without leading or trailing whitespace")


def _seconds(timeout: Duration) -> float:
    try:
        seconds = duration(timeout).total_seconds()
    except ValueError as error:
        raise ConfigError(f"timeout: {error}") from None
    if not seconds:
        raise ConfigError("timeout must be positive, such as 60 or '60s'")
    return seconds
