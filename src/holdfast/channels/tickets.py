"""Tickets for another program: a signed POST for each, as Standard Webhooks describes it."""

import base64
import hashlib
import hmac
import json
import ssl
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from urllib.parse import urlsplit

from holdfast.core.errors import ConfigError, Retryable
from holdfast.core.tickets import Ticket
from holdfast.ports.world import Clock

PREFIX = "whsec_"
"""What a secret begins with that is written in base64."""


@dataclass(frozen=True)
class TicketWebhook:
    """Posts each ticket to an address, as JSON. Give it to `hold.on_ticket`, or set `TICKET_WEBHOOK_URL`.

    The header `webhook-id` is the ticket's id, the same whenever it is told again. With a *secret* there is a
    `webhook-signature` over id, `webhook-timestamp` and body. An answer that is no success raises `Retryable`, and
    so does a redirect, which is not followed; the ticket is then told again. Raises `ConfigError` for an address or
    a secret that cannot be used.
    """

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False, kw_only=True)
    clock: Clock = field(repr=False, compare=False, kw_only=True)
    timeout: float = field(default=4.0, kw_only=True)
    """Seconds for all of it; whoever tells tickets waits five."""

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise ConfigError(
                "the address of a ticket webhook begins with http:// or https://, and names a host"
            )
        if find_spec("httpx") is None:
            raise ConfigError("a ticket webhook needs httpx; install it with: pip install 'holdfast[http]'")
        _key(self.secret)

    @property
    def place(self) -> str:
        """The address as it may be told: user, password, parameters, and with some services the path, are secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}" + ("" if parts.port is None else f":{parts.port}")

    async def __call__(self, ticket: Ticket) -> None:
        """Tell one ticket. Raises `Retryable` if nobody has said that it arrived."""
        import httpx  # noqa: PLC0415 - an extra

        body = json.dumps(
            {_camel(name): value for name, value in ticket.to_dict().items()}, default=str
        ).encode()
        client = httpx.AsyncClient(follow_redirects=False, timeout=self.timeout, verify=_certificates())
        try:
            async with client:
                answer = await client.post(self.url, content=body, headers=self._headers(ticket.id, body))
        except httpx.HTTPError as error:
            raise Retryable(
                f"the ticket webhook {self.place} did not answer: {type(error).__name__}"
            ) from error
        if not answer.is_success:
            raise Retryable(f"the ticket webhook {self.place} answered {answer.status_code}")

    def _headers(self, ticket_id: str, body: bytes) -> dict[str, str]:
        stamp = str(int(self.clock.now().timestamp()))
        headers = {
            "content-type": "application/json",
            "webhook-id": ticket_id,
            "webhook-timestamp": stamp,
        }
        key = _key(self.secret)
        if key is None:
            return headers
        signed = hmac.new(key, f"{ticket_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
        return headers | {"webhook-signature": f"v1,{base64.b64encode(signed).decode()}"}


def _camel(name: str) -> str:
    """Spell a field as JSON's readers expect it.

    >>> _camel("first_reason")
    'firstReason'
    """
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def _key(secret: str | None) -> bytes | None:
    """Give the bytes of a secret: what `whsec_` stands before is base64, any other is taken as it is written."""
    if secret is None:
        return None
    try:
        encoded = secret.startswith(PREFIX)
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if encoded else secret.encode()
    except ValueError:
        raise ConfigError(f"the secret of a ticket webhook has no base64 behind {PREFIX}") from None
    if not key:
        raise ConfigError("the secret of a ticket webhook is empty; leave it out, or give one")
    return key


@cache
def _certificates() -> ssl.SSLContext:
    """Give the certificates that are trusted, read once: that takes longer than all the rest of a call."""
    import httpx  # noqa: PLC0415 - an extra

    return httpx.create_ssl_context()
