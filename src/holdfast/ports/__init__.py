"""What the engine requires from its environment: the store, the archive, time, randomness, logs, metrics and traces."""

from holdfast.ports.archive import Archive, Encrypter
from holdfast.ports.codec import Codec
from holdfast.ports.logger import Logger
from holdfast.ports.metrics import Metrics
from holdfast.ports.queues import Depth
from holdfast.ports.schema import SchemaState
from holdfast.ports.store import Hint, HintKind, LeaseExtender, Promotion, Store
from holdfast.ports.system import Clock, Executor, Ids, Random, Watchdog
from holdfast.ports.tracing import Span, Tracer

__all__ = [
    "Archive",
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
    "Tracer",
    "Watchdog",
]
