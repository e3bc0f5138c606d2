"""Which attempt the running code belongs to, and which stage of it."""

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.stages import StageKey

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt

CURRENT: "ContextVar[Attempt | None]" = ContextVar("holdfast_attempt", default=None)


class RunningStage(NamedTuple):
    """A stage that runs at this moment, and which attempt at it this is."""

    place: StageKey
    number: int


STAGE: "ContextVar[RunningStage | None]" = ContextVar("holdfast_stage", default=None)
