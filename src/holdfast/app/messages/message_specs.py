"""Checks declarations of brokers and message types: a mistake raises when the application starts."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from holdfast.core.errors import ConfigError
from holdfast.core.messages.broker_message import OutgoingMessage, Route
from holdfast.core.messages.outbox import LONGEST_FIELD
from holdfast.core.messages.topology import Topology
from holdfast.core.names import ensure_name
from holdfast.engine.messages.message_type import MessageType, ensure_paths
from holdfast.engine.registry import BrokerSpec, Registry

SCHEMES = ("amqp://", "amqps://", "redis://", "rediss://")
"""How the addresses of brokers begin."""


def broker_spec(
    name: str,
    to: str | Callable[[OutgoingMessage], Any],
    *,
    topology: Topology | Mapping[str, Any] | None,
) -> BrokerSpec:
    """Build the specification of a broker. Raises `ConfigError`, which quotes no password."""
    known = ensure_name(name, "broker")
    if topology is not None and not isinstance(topology, Topology):
        topology = Topology.of(topology)
    if callable(to):
        return BrokerSpec(known, function=to, topology=topology)
    if not isinstance(to, str) or not to.startswith(SCHEMES):
        raise ConfigError(
            f"the address of broker {name!r} must begin with {', '.join(SCHEMES)}; or give a function"
        )
    return BrokerSpec(known, url=to, topology=topology)


def broker_name(broker: BrokerSpec | None, registry: Registry) -> str:
    """Return the name of *broker*, or of the only one that is declared. Raises `ConfigError`."""
    if broker is not None:
        if not isinstance(broker, BrokerSpec) or registry.brokers.get(broker.name) is not broker:
            raise ConfigError("broker= takes what hold.broker(...) of the same Holdfast returned")
        return broker.name
    if len(registry.brokers) != 1:
        known = ", ".join(registry.brokers) or "none"
        raise ConfigError(f"broker= is needed unless one broker is declared before; declared: {known}")
    return next(iter(registry.brokers))


def message_type(
    model: type[BaseModel],
    *,
    name: str,
    route: Route,
    identity: tuple[str, ...],
    aggregate_type: str,
    aggregate: str | None,
    version: int,
    unhashed: tuple[str, ...],
    reply_to: tuple[str, ...],
) -> MessageType:
    """Build a message type. Raises `ConfigError`, which says what is expected."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ConfigError(f"message {name!r} decorates {model!r}; decorate a pydantic model")
    for what, text in (("message type", name), ("aggregate type", aggregate_type)):
        if len(ensure_name(text, what)) > LONGEST_FIELD:
            raise ConfigError(f"{text!r} is too long for a {what}; {LONGEST_FIELD} characters are the most")
    if type(version) is not int or version < 1:
        raise ConfigError(f"version={version!r} of message {name!r} must be a whole number from 1 on")
    ensure_paths(model, (*identity, *(() if aggregate is None else (aggregate,))), f"message {name!r}")
    return MessageType(
        name=name,
        model=model,
        route=route,
        identity=identity,
        aggregate_type=aggregate_type,
        aggregate=aggregate,
        version=version,
        unhashed=unhashed,
        reply_to=tuple(ensure_name(key, "routing key") for key in reply_to),
    )
