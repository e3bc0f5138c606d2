"""Any service with JSON over HTTP."""

from typing import Any, Unpack, overload

from pydantic import BaseModel
from pydantic_core import from_json, to_jsonable_python

from holdfast.config import load_settings
from holdfast.core.errors import ConfigError
from holdfast.providers.answers import Shape, validate
from holdfast.providers.http import HttpClient, Options, Query


class JsonGateway(HttpClient):
    """Calls a service at an address. Address and timeout default to `GATEWAY_URL` and `GATEWAY_TIMEOUT_MS`.

    The other options are those of `HttpClient`. Raises `ConfigError` if there is no address.
    """

    def __init__(self, url: str | None = None, **options: Unpack[Options]) -> None:
        settings = load_settings(gateway_url=url)
        settings.ensure_usable("gateway_url", *(() if "timeout" in options else ("gateway_timeout_ms",)))
        if settings.gateway_url is None:
            raise ConfigError("a gateway needs an address; give it as JsonGateway(url), or set GATEWAY_URL")
        options.setdefault("timeout", settings.gateway_timeout)
        super().__init__(settings.gateway_url, **options)

    @overload
    async def post(
        self,
        path: str,
        body: Any = None,
        *,
        answer: None = None,
        query: Query | None = None,
        idempotency_key: str | None = None,
    ) -> Any: ...
    @overload
    async def post(
        self,
        path: str,
        body: Any = None,
        *,
        answer: type[Shape],
        query: Query | None = None,
        idempotency_key: str | None = None,
    ) -> Shape: ...
    async def post(
        self,
        path: str,
        body: Any = None,
        *,
        answer: type[BaseModel] | None = None,
        query: Query | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """Send *body* as JSON, once, and return the answer: as *answer*, or as plain JSON, `None` if it is empty.

        *body* may be or contain pydantic models. *path* is appended to the address and must not contain `..`;
        quote untrusted parts of it, including slashes. Raises `BadResponse` for an answer that is not JSON or
        does not match *answer*, and the errors of the network and the service.
        """
        sent = to_jsonable_python(body)
        text = await self._request("POST", path, query=query, json=sent, idempotency_key=idempotency_key)
        return _decode(text, answer)

    @overload
    async def get(self, path: str, *, answer: None = None, query: Query | None = None) -> Any: ...
    @overload
    async def get(self, path: str, *, answer: type[Shape], query: Query | None = None) -> Shape: ...
    async def get(
        self, path: str, *, answer: type[BaseModel] | None = None, query: Query | None = None
    ) -> Any:
        """Get *path*, without an idempotency key; otherwise like `post`."""
        return _decode(await self._request("GET", path, query=query), answer)


def _decode(text: bytes, answer: type[BaseModel] | None) -> Any:
    if answer is not None:
        return validate(answer, text, what="the answer")
    return from_json(text) if text else None
