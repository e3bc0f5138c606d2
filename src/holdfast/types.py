"""Types for annotations, for rules of classification, and for parts that an application may supply."""

from holdfast.app import Current, Provider, StageFunction
from holdfast.core.failures.failure import Failure, PublicCode, Scope, Sent, Verdict
from holdfast.core.jobs.job import EventKind
from holdfast.core.redaction import Pattern
from holdfast.ports import Codec, Logger, Metrics

__all__ = [
    "Codec",
    "Current",
    "EventKind",
    "Failure",
    "Logger",
    "Metrics",
    "Pattern",
    "Provider",
    "PublicCode",
    "Scope",
    "Sent",
    "StageFunction",
    "Verdict",
]
