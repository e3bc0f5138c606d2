"""The clients of the declared brokers, one for each, for as long as a worker runs."""

import asyncio

from holdfast.core.errors import ConfigError
from holdfast.engine.runtime import Runtime
from holdfast.ports import Broker

CLOSE_TIMEOUT = 5.0
"""Seconds that a client has to disconnect."""


class BrokerClients:
    """Makes the client of a broker when it is first needed; the relay and the consumers of a worker share it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._clients: dict[str, Broker] = {}

    @property
    def declared(self) -> bool:
        """Whether there are brokers to publish to, and a way to reach them."""
        return bool(self._runtime.registry.brokers) and self._runtime.open_broker is not None

    def get(self, name: str) -> Broker:
        """Return the client of a declared broker. Raises `ConfigError` if it cannot be made."""
        client = self._clients.get(name)
        if client is None:
            spec, open_broker = self._runtime.registry.brokers.get(name), self._runtime.open_broker
            if spec is None:
                raise ConfigError(
                    f"no broker named {name!r} is declared; declare it with hold.broker({name!r}, ...)"
                )
            if open_broker is None:
                raise ConfigError(f"this Holdfast cannot make a client for broker {name!r}")
            client = self._clients[name] = open_broker(spec)
        return client

    async def close(self) -> None:
        """Disconnect all of them. One that fails to is logged, and keeps no other from it."""
        for name, client in self._clients.items():
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await client.close()
            except Exception as error:  # noqa: BLE001 - a client that is given up; the others must be closed, too
                message = self._runtime.describe(error)
                self._runtime.logger.warning("broker not closed", broker=name, message=message)
        self._clients.clear()
