"""What a developer touches: `Holdfast`, the decorators, job handles."""

from holdfast.face.current import Current, current, note
from holdfast.face.dead import DeadLetters
from holdfast.face.handles import JobHandle
from holdfast.face.holdfast import Holdfast
from holdfast.face.jobs import JobFunction
from holdfast.face.providers import Provider, Providers, ProviderStatus
from holdfast.face.stages import StageFunction

__all__ = [
    "Current",
    "DeadLetters",
    "Holdfast",
    "JobFunction",
    "JobHandle",
    "Provider",
    "ProviderStatus",
    "Providers",
    "StageFunction",
    "current",
    "note",
]
