"""Which attempt the running code belongs to."""

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt

CURRENT: "ContextVar[Attempt | None]" = ContextVar("holdfast_attempt", default=None)
