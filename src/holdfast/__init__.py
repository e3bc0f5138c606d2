"""Durable jobs that call services which fail.

Decorate a function; each submitted call of it is stored, retried by the kind of its failure, and ends with a result or
with a dead letter that an operator can inspect, repair and replay.

All errors are in `holdfast.errors`, the services and values for operators in `holdfast.operations`, other types in
`holdfast.types`, ready clients in `holdfast.providers`.
"""

from holdfast.app import Holdfast, JobFunction, JobHandle, current, note
from holdfast.config import Settings
from holdfast.core.dead_letters.replay_plan import AutoReplay
from holdfast.core.dead_letters.retention import Retention
from holdfast.core.errors import HoldfastError, JobFailed, Permanent, Retryable
from holdfast.core.failures.backoff import Backoff
from holdfast.core.failures.failure import ErrorClass
from holdfast.core.failures.rules import Rule, rule
from holdfast.core.jobs.job import Event, Job, JobFilter
from holdfast.core.jobs.states import Status
from holdfast.core.providers.breaker import Breaker
from holdfast.core.redaction import Redactor

__all__ = [
    "AutoReplay",
    "Backoff",
    "Breaker",
    "ErrorClass",
    "Event",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobFailed",
    "JobFilter",
    "JobFunction",
    "JobHandle",
    "Permanent",
    "Redactor",
    "Retention",
    "Retryable",
    "Rule",
    "Settings",
    "Status",
    "current",
    "note",
    "rule",
]
