"""A client of the Redis that arq's workers use, with time limits, and errors in one clear line."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from arq.connections import ArqRedis, RedisSettings, create_pool
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from holdfast.arq.protocol import dump_json, load_json
from holdfast.core.errors import BrokerUnavailable, ConfigError

T = TypeVar("T")

TIMEOUT = timedelta(seconds=10)
"""How long one operation may take, with the connection that it may need."""

SCHEMES = ("redis://", "rediss://", "unix://")


def redis_settings(redis: RedisSettings | str) -> RedisSettings:
    """Return the settings of a Redis that is given as such or by its address. Raises `ConfigError`."""
    if isinstance(redis, RedisSettings):
        return redis
    if not isinstance(redis, str) or not redis.startswith(SCHEMES):
        raise ConfigError(
            f"the address of arq's Redis must begin with {', '.join(SCHEMES)}; or give RedisSettings"
        )
    try:
        return RedisSettings.from_dsn(redis)
    except ValueError:
        raise ConfigError(
            "the address of arq's Redis has an invalid port or database; write redis://host:6379/0"
        ) from None


def address_of(settings: RedisSettings) -> str:
    """Return an address for messages: without user and password.

    >>> address_of(RedisSettings("redis.example", 6379, database=2, password="secret"))
    'redis.example:6379/2'
    """
    if settings.unix_socket_path:
        return settings.unix_socket_path
    hosts = settings.host if isinstance(settings.host, list) else [(settings.host, settings.port)]
    return f"{','.join(f'{host}:{port}' for host, port in hosts)}/{settings.database}"


class RedisClient:
    """Runs operations on a Redis, each within a time limit. It connects when it is first used, and again after an error."""

    def __init__(self, settings: RedisSettings, *, timeout: timedelta = TIMEOUT) -> None:
        self._settings = settings
        self._seconds = timeout.total_seconds()
        self._client: ArqRedis | None = None
        self.address = address_of(settings)

    async def run(self, operation: Callable[[ArqRedis], Awaitable[T]]) -> T:
        """Run *operation* with a connection. Raises `BrokerUnavailable`: whether it took effect is unknown."""
        try:
            async with asyncio.timeout(self._seconds):
                if self._client is None:
                    self._client = await self._connect()
                return await operation(self._client)
        except TimeoutError as error:
            raise BrokerUnavailable(
                f"Redis at {self.address} did not answer within {self._seconds:g} s"
            ) from error
        except (AuthenticationError, AuthorizationError) as error:
            raise BrokerUnavailable(f"Redis at {self.address} refused the user or the password") from error
        except (RedisConnectionError, OSError) as error:
            raise BrokerUnavailable(f"Redis at {self.address} cannot be reached: {_text(error)}") from error
        except RedisError as error:
            raise BrokerUnavailable(f"Redis at {self.address} refused a command: {_text(error)}") from error

    async def _connect(self) -> ArqRedis:
        # Its own retries would take longer than the time limit, and hide the reason.
        settings = replace(self._settings, conn_retries=0, conn_timeout=max(1, round(self._seconds)))
        return await create_pool(settings, job_serializer=dump_json, job_deserializer=load_json)

    async def close(self) -> None:
        """Disconnect. A later operation connects again."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose(close_connection_pool=True)


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
