"""Types for annotations, for rules of classification, and for parts that an application may supply."""

from holdfast.app import Current, JobCall, Provider, StageFunction
from holdfast.core.failures.failure import Failure, PublicCode, Scope, Sent, Verdict
from holdfast.core.jobs.completion import Completion
from holdfast.core.jobs.job import EventKind
from holdfast.core.messages.announcements import AnnouncedFailure, Announcement, AnnouncementKind
from holdfast.core.messages.inbox import Received, ReceivedAs, RefusalReason
from holdfast.core.messages.topology import Topology
from holdfast.core.redaction import Pattern
from holdfast.engine.messages.new_message import Reply
from holdfast.engine.messages.receiving.delivery import Delivery
from holdfast.ports import Codec, Logger, Metrics

__all__ = [
    "AnnouncedFailure",
    "Announcement",
    "AnnouncementKind",
    "Codec",
    "Completion",
    "Current",
    "Delivery",
    "EventKind",
    "Failure",
    "JobCall",
    "Logger",
    "Metrics",
    "Pattern",
    "Provider",
    "PublicCode",
    "Received",
    "ReceivedAs",
    "RefusalReason",
    "Reply",
    "Scope",
    "Sent",
    "StageFunction",
    "Topology",
    "Verdict",
]
