"""Commands, and the state of a run from which they are drawn.

Every command is one call of the `Store` port, or a wait, so the trace of a failing example reads like a program.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.core.jobs.job import Claim, Submission
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Transition
from tests.stateful.model import Model
from tests.stateful.short_repr import short_repr


class Command(NamedTuple):
    """A call of the port, before it is made."""

    operation: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    def __repr__(self) -> str:
        written = [
            *map(short_repr, self.args),
            *(f"{name}={short_repr(value)}" for name, value in self.options.items()),
        ]
        return f"{self.operation}({', '.join(written)})"


def command(operation: str, *args: Any, **options: Any) -> Command:
    """Name a call of the port."""
    return Command(operation, args, options)


@dataclass
class RunState:
    """What strategies draw from: the jobs as they are, and earlier commands and answers."""

    model: Model = field(default_factory=Model)
    submitted: list[list[Submission]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    settled: list[Transition] = field(default_factory=list)

    def held(self) -> list[Claim]:
        """Return the leases that are held at this moment."""
        return [claim for claim in self.claims if self.model.holds(claim.id, claim.token)]

    def marked(self) -> list[Claim]:
        """Return the leases that are held on jobs which lost a worker before, are late, or have a request to cancel."""
        jobs, late = self.model.jobs, {job.id for job in self.model.late()}
        return [
            claim
            for claim in self.held()
            if claim.losses or claim.id in late or jobs[claim.id].cancel_requested
        ]

    def ready_queues(self) -> list[str]:
        """Return the queues in which a worker would find something."""
        queued = [job for job in self.model.jobs.values() if job.status is Status.QUEUED]
        return sorted({job.queue for job in queued if job.retry_after is None})

    def ids(self, *states: Status) -> list[str]:
        """Return the ids of the jobs in one of *states*."""
        return [job.id for job in self.model.jobs.values() if job.status in states]

    def failed_stages(self, job_id: str) -> list[str]:
        """Name the stages of a job that failed for good."""
        rows = self.model.stage_rows[job_id].values()
        return [str(row.key) for row in rows if row.status is StageStatus.FAILED]

    def new_id(self, place: int) -> str:
        """Return the id of the job in this *place* of the next batch: later ones are higher, as with UUIDv7."""
        return f"00000000-0000-7000-8000-{len(self.submitted):06x}{place:06x}"

    def remember(self, command: Command, answer: Any) -> None:
        """Keep commands and answers that later commands may repeat."""
        match command:
            case Command("submit", (batch,), options) if not options:
                self.submitted.append(batch)
            case Command("claim"):
                self.claims += answer
            case Command("settle", (_, batch)):
                self.settled = batch

    def ends(self) -> set[datetime]:
        """Return the instants at which waits and leases end, and deadlines pass; a hold has no end that a command waits for."""
        live = [job for job in self.model.jobs.values() if not job.status.ended and job.held_by is None]
        instants = [(job.retry_after, job.lease_expires_at, job.deadline_at) for job in live]
        return {at for job in instants for at in job if at is not None}

    def cut_off(self) -> list[Claim]:
        """Return the leases that a deadline ended."""
        return [claim for claim in self.claims if self.model.cut_off.get(claim.id) == claim.token]

    def with_late_results(self) -> list[str]:
        """Return the ids of the jobs that have a late result."""
        return [job.id for job in self.model.jobs.values() if job.late_at is not None]
