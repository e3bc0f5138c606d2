"""RabbitMQ behind the port `Broker`."""

from holdfast.brokers.rabbitmq.rabbit_broker import RabbitBroker

__all__ = ["RabbitBroker"]
