"""What a developer touches: `Holdfast`, the decorators, job handles."""

from holdfast.app.current import Current, current, note
from holdfast.app.database import Database
from holdfast.app.holdfast import Holdfast
from holdfast.app.job_function import JobCall, JobFunction
from holdfast.app.job_handle import JobHandle
from holdfast.app.provider import Provider
from holdfast.app.stage_function import StageFunction

__all__ = [
    "Current",
    "Database",
    "Holdfast",
    "JobCall",
    "JobFunction",
    "JobHandle",
    "Provider",
    "StageFunction",
    "current",
    "note",
]
