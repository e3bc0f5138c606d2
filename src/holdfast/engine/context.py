"""Which attempt the running code belongs to, which stage of it, and which calls to providers."""

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.stages import StageKey

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt
    from holdfast.engine.calls import Call

CURRENT: "ContextVar[Attempt | None]" = ContextVar("holdfast_attempt", default=None)


class RunningStage(NamedTuple):
    """A stage that runs at this moment, which attempt at it this is, and whom it calls."""

    place: StageKey
    number: int
    provider: str | None = None


STAGE: "ContextVar[RunningStage | None]" = ContextVar("holdfast_stage", default=None)

CALLING: "ContextVar[tuple[Call, ...]]" = ContextVar("holdfast_calling", default=())
"""The calls to providers that the running code is in the middle of."""
