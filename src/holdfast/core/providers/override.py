"""An operator's override of a breaker."""

from enum import StrEnum
from typing import NamedTuple


class OverrideKind(StrEnum):
    """How an operator can override a breaker."""

    OPEN = "open"
    """No call; a backup takes over."""
    CLOSED = "closed"
    """Every call."""
    OBSERVE = "observe"
    """Every call; what the breaker would do is only recorded."""
    PAUSE = "pause"
    """No call, and no backup either: jobs wait."""


class Override(NamedTuple):
    """An operator's override of a breaker."""

    kind: OverrideKind
    actor: str
    reason: str
    at: float
