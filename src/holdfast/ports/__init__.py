"""What the engine asks of the world."""

from holdfast.ports.archive import Archive, Sealer
from holdfast.ports.codec import Codec
from holdfast.ports.logger import Logger
from holdfast.ports.metrics import Metrics
from holdfast.ports.store import Depth, Hint, HintKind, LeaseExtender, Promotion, SchemaState, Store
from holdfast.ports.tracing import Span, Tracer
from holdfast.ports.world import Clock, Dice, Executor, Ids, Watchdog

__all__ = [
    "Archive",
    "Clock",
    "Codec",
    "Depth",
    "Dice",
    "Executor",
    "Hint",
    "HintKind",
    "Ids",
    "LeaseExtender",
    "Logger",
    "Metrics",
    "Promotion",
    "SchemaState",
    "Sealer",
    "Span",
    "Store",
    "Tracer",
    "Watchdog",
]
