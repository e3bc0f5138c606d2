"""The topology of a broker as data: which exchanges, queues and bindings it should have."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.core.errors import ConfigError

LONGEST_NAME = 255
"""Bytes in the name of an exchange or a queue, and in a routing key."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange, which routes messages to queues."""

    name: str
    type: str = "direct"
    durable: bool = True


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, with the arguments that it is declared with."""

    name: str
    durable: bool = True
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """The messages of an exchange with this routing key go to the queue."""

    exchange: str
    queue: str
    routing_key: str

    def __str__(self) -> str:
        """Return the binding as it is displayed.

        >>> str(Binding("vstep.exchange", "grading.dlq", "grading.dlq"))
        'vstep.exchange -> grading.dlq (grading.dlq)'
        """
        return f"{self.exchange} -> {self.queue} ({self.routing_key})"


@dataclass(frozen=True, slots=True)
class Topology:
    """The exchanges, queues and bindings of a broker."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Topology":
        """Read a topology from a document, such as a JSON file. Raises `ConfigError`, which names the place.

        `exchange` is one exchange and `exchanges` a list of them; `queues` and `bindings` are lists. Without `bindings`,
        each queue is bound under its own name to the only exchange.

        >>> Topology.of({"exchange": {"name": "shop"}, "queues": [{"name": "orders"}]}).bindings
        (Binding(exchange='shop', queue='orders', routing_key='orders'),)
        """
        known = _fields(document, "the topology", ("exchange", "exchanges", "queues", "bindings"))
        single = [known["exchange"]] if "exchange" in known else []
        exchanges = tuple(map(_exchange, [*single, *_list(known, "exchanges")]))
        queues = tuple(map(_queue, _list(known, "queues")))
        _ensure_once("exchange", [exchange.name for exchange in exchanges])
        _ensure_once("queue", [queue.name for queue in queues])
        if "bindings" in known:
            bindings = tuple(map(_binding, _list(known, "bindings")))
            for binding in bindings:
                _ensure_declared(binding, exchanges, queues)
        else:
            bindings = _default_bindings(exchanges, queues)
        return cls(exchanges, queues, bindings)

    def as_document(self) -> dict[str, Any]:
        """Return the topology as a document that `of` reads, with all its bindings."""
        return {
            "exchanges": [
                {"name": exchange.name, "type": exchange.type, "durable": exchange.durable}
                for exchange in self.exchanges
            ],
            "queues": [
                {"name": queue.name, "durable": queue.durable, "arguments": dict(queue.arguments)}
                for queue in self.queues
            ],
            "bindings": [
                {"exchange": binding.exchange, "queue": binding.queue, "routingKey": binding.routing_key}
                for binding in self.bindings
            ],
        }


class Presence(StrEnum):
    """What a broker has of a part of a topology."""

    PRESENT = "present"
    MISSING = "missing"
    DIFFERENT = "different"
    """There is one of this name with other properties. It is not changed: that would delete its messages."""
    UNKNOWN = "not checked"
    CREATED = "created"


class TopologyPart(NamedTuple):
    """An exchange, a queue or a binding of a topology, with what the broker has of it."""

    kind: str
    name: str
    presence: Presence
    detail: str = ""


def compare_bindings(expected: Iterable[Binding], found: Collection[Binding]) -> list[TopologyPart]:
    """Compare bindings with those that the broker has. Further ones of the broker are no difference."""
    return [
        TopologyPart("binding", str(binding), Presence.PRESENT if binding in found else Presence.MISSING)
        for binding in expected
    ]


def _exchange(value: Any) -> Exchange:
    fields = _fields(value, "an exchange", ("name", "type", "durable"))
    name = _name(fields, "name", "an exchange")
    where = f"exchange {name!r}"
    return Exchange(name, _name({"type": "direct"} | fields, "type", where), _durable(fields, where))


def _queue(value: Any) -> Queue:
    fields = _fields(value, "a queue", ("name", "durable", "arguments"))
    name = _name(fields, "name", "a queue")
    arguments = fields.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"arguments of queue {name!r} must be an object, such as {{'x-max-length': 10000}}")
    return Queue(name, _durable(fields, f"queue {name!r}"), dict(arguments))


def _binding(value: Any) -> Binding:
    fields = _fields(value, "a binding", ("exchange", "queue", "routingKey"))
    queue = _name(fields, "queue", "a binding")
    where = f"the binding of queue {queue!r}"
    return Binding(
        _name(fields, "exchange", where), queue, _name({"routingKey": queue} | fields, "routingKey", where)
    )


def _default_bindings(exchanges: Collection[Exchange], queues: Collection[Queue]) -> tuple[Binding, ...]:
    if not exchanges:
        return ()
    if len(exchanges) > 1:
        raise ConfigError("a topology of several exchanges must list its bindings, in 'bindings'")
    [exchange] = exchanges
    return tuple(Binding(exchange.name, queue.name, queue.name) for queue in queues)


def _ensure_declared(binding: Binding, exchanges: Collection[Exchange], queues: Collection[Queue]) -> None:
    if not any(exchange.name == binding.exchange for exchange in exchanges):
        raise ConfigError(f"the binding {binding} names an exchange that the topology does not have")
    if not any(queue.name == binding.queue for queue in queues):
        raise ConfigError(f"the binding {binding} names a queue that the topology does not have")


def _ensure_once(kind: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"the topology has two {kind}s named {name!r}")
        seen.add(name)


def _fields(value: Any, what: str, known: Collection[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} must be an object with the fields {', '.join(known)}, not {value!r}")
    unknown = [name for name in value if name not in known]
    if unknown:
        raise ConfigError(f"{what} has the unknown field {unknown[0]!r}; known are {', '.join(known)}")
    return dict(value)


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    value = fields.get(name, [])
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} of the topology must be a list")
    return [*value]


def _name(fields: Mapping[str, Any], name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value or len(value.encode()) > LONGEST_NAME:
        raise ConfigError(f"{name} of {where} must be text of 1 to {LONGEST_NAME} bytes, not {value!r}")
    return value


def _durable(fields: Mapping[str, Any], where: str) -> bool:
    value = fields.get("durable", True)
    if not isinstance(value, bool):
        raise ConfigError(f"durable of {where} must be true or false, not {value!r}")
    return value
