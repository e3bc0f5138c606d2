"""What the engine asks of the world."""

from holdfast.ports.journal import Journal
from holdfast.ports.metrics import Metrics
from holdfast.ports.store import Hint, HintKind, Promotion, SchemaState, Store
from holdfast.ports.world import Clock, Dice, Executor, Ids

__all__ = [
    "Clock",
    "Dice",
    "Executor",
    "Hint",
    "HintKind",
    "Ids",
    "Journal",
    "Metrics",
    "Promotion",
    "SchemaState",
    "Store",
]
