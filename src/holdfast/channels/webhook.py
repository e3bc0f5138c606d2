"""Outgoing webhooks: a signed POST to a configured address that is not trusted.

The format is that of Standard Webhooks. The receiver cannot affect this process: the body of its answer is not read,
the whole exchange has a timeout, redirects are not followed, and a host name that resolves to an address inside the
network is refused. The connection goes to the address that was checked, so that a second look-up cannot give another
one.
"""

import asyncio
import base64
import hashlib
import hmac
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_address
from urllib.parse import urlsplit

from holdfast.core.addresses import AllowList
from holdfast.core.errors import ConfigError, Retryable
from holdfast.ports.system import Clock

PREFIX = "whsec_"
"""The prefix of a secret that is encoded in base64."""


@dataclass(frozen=True)
class Webhook:
    """Posts JSON to *url*. Raises `ConfigError` for an address, a secret or an allow-list that cannot be used.

    *secrets* are the signing keys, the current one first: while a key is rotated, every request carries a signature
    by each of them. *allow* lists hosts and networks that may be called although they are not public.
    """

    url: str = field(repr=False)
    clock: Clock = field(repr=False, compare=False, kw_only=True)
    secrets: Sequence[str] = field(default=(), repr=False, kw_only=True)
    allow: Sequence[str] = field(default=(), kw_only=True)
    timeout: float = field(default=4.0, kw_only=True)
    """Seconds for the whole exchange: look-up, connection, request, status of the answer."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the address of a webhook must begin with http:// or https://, and name a host")
        if find_spec("httpx") is None:
            raise ConfigError("a webhook needs httpx; install it with: pip install 'holdfast[http]'")
        for secret in self.secrets:
            _key(secret)
        self._allowed()

    @property
    def origin(self) -> str:
        """The address for messages, without its secrets: user, password, parameters and, for some services, the path."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}" + ("" if parts.port is None else f":{parts.port}")

    async def post(self, message_id: str, body: bytes) -> None:
        """Send *body*, JSON, under *message_id*, which stays the same when it is sent again.

        Raises `Retryable` unless the receiver has confirmed it, and `ConfigError` if the address is not allowed.
        """
        try:
            async with asyncio.timeout(self.timeout):
                status = await self._send(message_id, body)
        except TimeoutError:
            raise Retryable(f"the webhook {self.origin} did not answer within {self.timeout:g} s") from None
        if not 200 <= status < 300:
            raise Retryable(f"the webhook {self.origin} answered {status}")

    async def _send(self, message_id: str, body: bytes) -> int:
        """Post to the first address that accepts a connection, and return the status of the answer."""
        import httpx  # noqa: PLC0415 - an extra

        url = httpx.URL(self.url)
        headers = self._headers(message_id, body) | {"host": url.netloc.decode("ascii")}
        addresses = await self._permitted_addresses()
        # A proxy from the environment would resolve the name again, and connect to another address.
        async with httpx.AsyncClient(timeout=self.timeout, verify=_certificates(), trust_env=False) as client:
            for position, address in enumerate(addresses, start=1):
                request = client.build_request(
                    "POST",
                    url.copy_with(host=address),
                    content=body,
                    headers=headers,
                    extensions={"sni_hostname": url.raw_host.decode("ascii")},
                )
                try:
                    answer = await client.send(request, stream=True, follow_redirects=False)
                except httpx.HTTPError as error:
                    if isinstance(error, httpx.ConnectError) and position < len(addresses):
                        continue  # nothing was sent
                    raise Retryable(
                        f"the webhook {self.origin} did not answer: {type(error).__name__}"
                    ) from error
                await answer.aclose()  # its body is not read: it may be endless, or a decompression bomb
                return answer.status_code
        raise AssertionError("there is at least one address")

    async def _permitted_addresses(self) -> list[str]:
        """Resolve the host. Raises `ConfigError` if none of its addresses is allowed."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, parts.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Retryable(f"the host of the webhook {self.origin} cannot be looked up") from error
        addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
        allowed = self._allowed()
        permitted = [address for address in addresses if allowed.permits(host, ip_address(address))]
        if not permitted:
            raise ConfigError(
                f"the webhook {self.origin} leads to {addresses[0]}, which is not a public address; "
                "if that is intended, name the host or its network in the webhook's allow-list"
            )
        return permitted

    def _allowed(self) -> AllowList:
        try:
            return AllowList.of(self.allow)
        except ValueError as error:
            raise ConfigError(f"the allow-list of a webhook is not usable: {error}") from None

    def _headers(self, message_id: str, body: bytes) -> dict[str, str]:
        stamp = str(int(self.clock.now().timestamp()))
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": stamp,
        }
        if not self.secrets:
            return headers
        signed = f"{message_id}.{stamp}.".encode() + body
        digests = [hmac.new(_key(secret), signed, hashlib.sha256).digest() for secret in self.secrets]
        signatures = [f"v1,{base64.b64encode(digest).decode()}" for digest in digests]
        return headers | {"webhook-signature": " ".join(signatures)}


def _key(secret: str) -> bytes:
    """Return the bytes of a secret: after `whsec_` it is base64, any other text is used as it is."""
    try:
        encoded = secret.startswith(PREFIX)
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if encoded else secret.encode()
    except ValueError:
        raise ConfigError(f"the secret of a webhook must have base64 after {PREFIX}") from None
    if not key:
        raise ConfigError("the secret of a webhook is empty; omit it to send unsigned requests")
    return key


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, read once: reading them takes longer than the rest of a call."""
    import httpx  # noqa: PLC0415 - an extra

    return httpx.create_ssl_context()
