"""Connections belong to the event loop that opened them, and a client of ours may be used from several."""

import asyncio
import ssl
from collections.abc import Callable
from functools import cache

import httpx


class PerLoop:
    """One httpx client for each event loop that asks, made when it first does.

    That also is why a forked process is safe: it runs a loop of its own, and never touches its parent's connections.
    """

    def __init__(self, make: Callable[[], httpx.AsyncClient]) -> None:
        self._make = make
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}

    def here(self) -> httpx.AsyncClient:
        """Give the client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            self._forget_closed_loops()
            client = self._clients[loop] = self._make()
        return client

    async def close(self) -> None:
        """Close the connections of the running loop; the next call opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _forget_closed_loops(self) -> None:
        """Let go of what nobody can close any more. No weak reference would: connections hold on to their loop."""
        for loop in [loop for loop in list(self._clients) if loop.is_closed()]:
            self._clients.pop(loop, None)


@cache
def certificates() -> ssl.SSLContext:
    """Give the certificates that are trusted, read once: that takes longer than all the rest of a client."""
    return httpx.create_ssl_context()
