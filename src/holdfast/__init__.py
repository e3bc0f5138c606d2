"""Holdfast keeps work that calls services which fail.

Decorate a function; from then on each call of it is a job that is never lost, is retried with
sense, and ends where a person can see and repair it.
"""

from holdfast.config import Settings
from holdfast.core.backoff import Backoff
from holdfast.core.errors import (
    BadResponse,
    ConfigError,
    HoldfastError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    KeyReused,
    MediaInvalid,
    PayloadInvalid,
    PayloadTooLarge,
    Permanent,
    PolicyRejected,
    ResultTimeout,
    Retryable,
    SchemaError,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    StageFailed,
    StageMismatch,
    StateRefused,
    StoreReadOnly,
    StoreUnavailable,
    SubmitError,
    VersionRefused,
    WithinUnsupported,
)
from holdfast.core.failures import ErrorClass, Failure, PublicCode, Scope, Sent, Verdict
from holdfast.core.jobs import Event, EventKind, Job, JobFilter
from holdfast.core.rules import Rule, rule
from holdfast.core.states import Status
from holdfast.face import Current, Holdfast, JobFunction, JobHandle, StageFunction, current
from holdfast.ports import Journal, Metrics, SchemaState

__all__ = [
    "Backoff",
    "BadResponse",
    "ConfigError",
    "Current",
    "ErrorClass",
    "Event",
    "EventKind",
    "Failure",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobFilter",
    "JobFunction",
    "JobHandle",
    "JobNotFound",
    "Journal",
    "KeyReused",
    "MediaInvalid",
    "Metrics",
    "PayloadInvalid",
    "PayloadTooLarge",
    "Permanent",
    "PolicyRejected",
    "PublicCode",
    "ResultTimeout",
    "Retryable",
    "Rule",
    "SchemaError",
    "SchemaMissing",
    "SchemaState",
    "SchemaTooNew",
    "SchemaTooOld",
    "Scope",
    "Sent",
    "Settings",
    "StageFailed",
    "StageFunction",
    "StageMismatch",
    "StateRefused",
    "Status",
    "StoreReadOnly",
    "StoreUnavailable",
    "SubmitError",
    "Verdict",
    "VersionRefused",
    "WithinUnsupported",
    "current",
    "rule",
]
