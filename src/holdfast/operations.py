"""The services for operators, which are attributes of `Holdfast`, and the values that they accept and return."""

from holdfast.app import Database
from holdfast.core.dead_letters.letter import Cause, Group, Letter, LetterFilter, LetterState, LetterStep
from holdfast.core.dead_letters.replay_plan import PreflightCheck
from holdfast.core.dead_letters.ticket import Ticket, TicketKind
from holdfast.core.messages.outbox import BlockedRoute, MessageFilter, MessageStatus, OutboxMessage
from holdfast.engine.dead_letters.dead_letter_service import DeadLetterService
from holdfast.engine.dead_letters.letter_repair import DeadLetterDetails
from holdfast.engine.dead_letters.letter_selection import BulkResult
from holdfast.engine.dead_letters.replay_planner import PlanResult, Progress
from holdfast.engine.dead_letters.restorer import Archived
from holdfast.engine.messages.outbox_service import OutboxService
from holdfast.engine.operations.job_service import JobDetails, JobListing, JobService
from holdfast.engine.operations.queue_service import QueueService, QueueStatus
from holdfast.engine.operations.schedule_service import ScheduleService, ScheduleStatus
from holdfast.engine.providers.provider_service import ProviderService, ProviderStatus
from holdfast.ports import SchemaState
from holdfast.ports.messages.outbox import OutboxStats
from holdfast.ports.providers import ProviderEvent
from holdfast.ports.queues import Depth, Pause

__all__ = [
    "Archived",
    "BlockedRoute",
    "BulkResult",
    "Cause",
    "Database",
    "DeadLetterDetails",
    "DeadLetterService",
    "Depth",
    "Group",
    "JobDetails",
    "JobListing",
    "JobService",
    "Letter",
    "LetterFilter",
    "LetterState",
    "LetterStep",
    "MessageFilter",
    "MessageStatus",
    "OutboxMessage",
    "OutboxService",
    "OutboxStats",
    "Pause",
    "PlanResult",
    "PreflightCheck",
    "Progress",
    "ProviderEvent",
    "ProviderService",
    "ProviderStatus",
    "QueueService",
    "QueueStatus",
    "ScheduleService",
    "ScheduleStatus",
    "SchemaState",
    "Ticket",
    "TicketKind",
]
