"""What a developer touches: `Holdfast`, the decorators, job handles."""

from holdfast.face.current import Current, current, note
from holdfast.face.database import Database
from holdfast.face.handles import JobHandle
from holdfast.face.holdfast import Holdfast
from holdfast.face.jobs import JobFunction
from holdfast.face.providers import Provider
from holdfast.face.stages import StageFunction

__all__ = [
    "Current",
    "Database",
    "Holdfast",
    "JobFunction",
    "JobHandle",
    "Provider",
    "StageFunction",
    "current",
    "note",
]
