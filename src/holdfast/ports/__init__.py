"""What the engine requires from its environment: the store, the archive, brokers, time, randomness, logs, metrics and traces."""

from holdfast.ports.archive import Archive, Encrypter
from holdfast.ports.codec import Codec
from holdfast.ports.messages.broker import Broker, Subscription
from holdfast.ports.queues import Depth
from holdfast.ports.schema import SchemaState
from holdfast.ports.store import Hint, HintKind, LeaseExtender, Promotion, Store
from holdfast.ports.system import Clock, Executor, Ids, Random, Watchdog
from holdfast.ports.telemetry import Logger, Metrics, Span, Tracer

__all__ = [
    "Archive",
    "Broker",
    "Clock",
    "Codec",
    "Depth",
    "Encrypter",
    "Executor",
    "Hint",
    "HintKind",
    "Ids",
    "LeaseExtender",
    "Logger",
    "Metrics",
    "Promotion",
    "Random",
    "SchemaState",
    "Span",
    "Store",
    "Subscription",
    "Tracer",
    "Watchdog",
]
