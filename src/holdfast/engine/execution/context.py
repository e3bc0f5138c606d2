"""Which job the running code belongs to, which stage of it, and which calls to providers."""

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.jobs.stages import StageKey

if TYPE_CHECKING:
    from holdfast.engine.execution.job_context import JobContext
    from holdfast.engine.execution.provider_calls import ProviderCall

CURRENT: "ContextVar[JobContext | None]" = ContextVar("holdfast_job", default=None)


class RunningStage(NamedTuple):
    """A running stage, the number of the attempt at it, and the provider that it calls."""

    key: StageKey
    number: int
    provider: str | None = None


STAGE: "ContextVar[RunningStage | None]" = ContextVar("holdfast_stage", default=None)

CALLING: "ContextVar[tuple[ProviderCall, ...]]" = ContextVar("holdfast_calling", default=())
"""The calls to providers that the running code is inside of, outermost first."""
