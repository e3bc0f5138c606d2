"""Redis streams behind the port `Broker`."""

from holdfast.brokers.redis_streams.redis_broker import RedisBroker

__all__ = ["RedisBroker"]
