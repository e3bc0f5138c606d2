"""One httpx client for each event loop: connections belong to the loop that opened them."""

import asyncio
import ssl
from collections.abc import Callable
from functools import cache

import httpx


class PerLoop:
    """One httpx client for each event loop, created at its first use.

    It is safe after a fork: the child runs its own loop, and does not use the connections of its parent.
    """

    def __init__(self, make: Callable[[], httpx.AsyncClient]) -> None:
        self._make = make
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}

    def here(self) -> httpx.AsyncClient:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # Weak references would not drop the clients of closed loops: connections refer to their loop.
            for closed in [each for each in list(self._clients) if each.is_closed()]:
                self._clients.pop(closed, None)
            client = self._clients[loop] = self._make()
        return client

    async def close(self) -> None:
        """Close the connections of the running loop; the next call opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


@cache
def certificates() -> ssl.SSLContext:
    """Return the trusted certificates, read once: reading them takes longer than the rest of a client."""
    return httpx.create_ssl_context()
