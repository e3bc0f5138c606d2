"""Any service that takes and gives JSON over HTTP."""

from typing import Any, Unpack, overload

from pydantic import BaseModel
from pydantic_core import from_json, to_jsonable_python

from holdfast.config import load_settings
from holdfast.core.errors import ConfigError
from holdfast.providers.answers import Shape, fitted
from holdfast.providers.http import HttpClient, Options, Query


class JsonGateway(HttpClient):
    """Calls a service below an address. Address and timeout come from `GATEWAY_URL` and `GATEWAY_TIMEOUT_MS` if not given.

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
        """Send *body* as JSON, once, and give the answer: as *answer*, or as it is, `None` if it is empty.

        *body* may be or hold models of pydantic. *path* is appended to the address and cannot lead out
        of it; quote in it, slashes included, what comes from outside. Raises `BadResponse` for an answer
        that is no JSON or does not fit, and what the network and the service bring.
        """
        sent = to_jsonable_python(body)
        text = await self._asked("POST", path, query=query, json=sent, idempotency_key=idempotency_key)
        return _understood(text, answer)

    @overload
    async def get(self, path: str, *, answer: None = None, query: Query | None = None) -> Any: ...
    @overload
    async def get(self, path: str, *, answer: type[Shape], query: Query | None = None) -> Shape: ...
    async def get(
        self, path: str, *, answer: type[BaseModel] | None = None, query: Query | None = None
    ) -> Any:
        """Ask for what is at *path*, without an idempotency key; all else is as with `post`."""
        return _understood(await self._asked("GET", path, query=query), answer)


def _understood(text: bytes, answer: type[BaseModel] | None) -> Any:
    if answer is not None:
        return fitted(answer, text, what="the answer")
    return from_json(text) if text else None
