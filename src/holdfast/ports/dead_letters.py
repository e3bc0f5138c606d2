"""Dead letters, replay plans and tickets, kept beside the jobs, and how long all of it is kept.

The store itself writes a letter with the end of its job: no worker can end a job as failed and leave none. A step
of an operator is a compare-and-swap: it names the version of the letter that it was decided on.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from holdfast.core.dead_letters.letter import Group, Letter, LetterFilter, LetterStep, Step
from holdfast.core.dead_letters.replay_plan import Plan, PlanCounts

Seen = tuple[str, int]
"""A letter as a caller has read it: its job's id, and its version."""


class DeadLetterStore(Protocol):
    """The operations of a store on dead letters."""

    async def get(self, job_id: str, *, owner: str | None = None) -> Letter:
        """Read one letter. Raises `LetterNotFound` if it is absent or not *owner*'s."""
        ...

    async def find(self, letter_filter: LetterFilter) -> list[Letter]:
        """List letters by their jobs' ids, the newest first."""
        ...

    async def find_replayable(
        self, name: str, *, ages: tuple[timedelta, timedelta], limit: int, after: Letter | None = None
    ) -> list[Letter]:
        """List new letters of *name* that were never replayed, whose failure is retryable and of that age.

        The oldest first; a page begins *after* the given one. The cost does not grow with other letters. Of *ages*,
        the first is included, the second is not.
        """
        ...

    async def groups(self, letter_filter: LetterFilter) -> list[Group]:
        """Group letters by fingerprint, the most recent first."""
        ...

    async def counts(self) -> dict[tuple[str, str], int]:
        """Count letters by their jobs' name and their state."""
        ...

    async def steps(self, job_id: str) -> list[LetterStep]:
        """Read the steps of a letter, in order."""
        ...

    async def move(
        self,
        seen: Sequence[Seen],
        steps: Sequence[Step],
        *,
        plan: Plan | None = None,
        args: str | None = None,
    ) -> list[str]:
        """Take *steps*, one after the other, with each letter that has not changed since it was read; return their job ids.

        The first step has to follow from the letter's state. With *plan*, a new one whose token the last step names,
        that is stored with them. With *args*, of one letter, its job gets other arguments, and those that
        it was submitted with are kept. All of it is one transaction.
        """
        ...

    async def original_args(self, job_id: str) -> str | None:
        """Return the arguments that a job was submitted with, if they were corrected since."""
        ...

    async def count_since(self, age: timedelta) -> int:
        """Count the letters whose job has failed within that time before now."""
        ...


class PlanRow(NamedTuple):
    """A plan as stored; *state* is what `Plan.dump` wrote."""

    token: str
    version: int
    state: str


class ReplayPlanStore(Protocol):
    """The operations of a store on replay plans."""

    async def get(self, token: str) -> PlanRow:
        """Read a plan. Raises `PlanStale` if there is none."""
        ...

    async def running(self) -> list[PlanRow]:
        """List the plans that have begun and not ended."""
        ...

    async def counts(self, token: str) -> tuple[float, PlanCounts]:
        """Return the store's time in seconds, and how many letters of a plan are in each state."""
        ...

    async def advance(self, row: PlanRow, plan: Plan, *, take: int = 0) -> list[str] | None:
        """Replace the plan that was read as *row* by *plan*, and replay *take* letters with it; return their job ids.

        The oldest validated letters of the plan go: their jobs come back as new generations, with fresh attempts, and
        keep their finished stages unless the plan says `restart`. `None`, and nothing has changed, if the plan was
        advanced meanwhile.
        """
        ...


class TicketRow(NamedTuple):
    """A ticket that is due: about the letter of *job_id*, if that exists, else described by *facts*."""

    id: str
    kind: str
    raised_at: datetime
    job_id: str | None
    fingerprint: str | None
    facts: Mapping[str, Any]
    logged: bool = False
    """Whether it is in a log already."""


class TicketStore(Protocol):
    """The operations of a store on tickets and alarms."""

    async def take(self, *, limit: int, lease: timedelta) -> list[TicketRow]:
        """Take tickets that are due, the most urgent first; no other caller gets them for as long as the *lease*.

        One that was not marked as notified by then is due again, each time after twice as long, up to 64 leases.
        """
        ...

    async def mark_notified(self, ticket_ids: Sequence[str], *, quiet: bool = False) -> None:
        """Record that these tickets were notified; if *quiet*, by another ticket of their group."""
        ...

    async def mark_logged(self, ticket_ids: Sequence[str]) -> None:
        """Record that these tickets are logged, so that they are not logged again when they are taken next."""
        ...

    async def groups_notified(self, fingerprints: Sequence[str], *, within: timedelta) -> set[str]:
        """Return those of *fingerprints* with a ticket that was notified within that time, and not quietly."""
        ...

    async def raise_alarm(self, kind: str, facts: Mapping[str, Any]) -> bool:
        """Raise an alarm, with a ticket of that kind; return false, without another ticket, if it is raised already."""
        ...

    async def clear_alarm(self, kind: str) -> bool:
        """Clear an alarm; return false if it is not raised."""
        ...


class RetentionStore(Protocol):
    """The operations of a store that archive, delete and restore."""

    async def letters_to_archive(
        self, *, older_than: timedelta | None, beyond: int | None, limit: int
    ) -> list[Seen]:
        """Return letters that need not be kept: the oldest first, and none that is being replayed.

        The letters *beyond* that number are counted among those of jobs, and apart among those of messages.
        """
        ...

    async def letter_records(self, job_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Read these letters and their jobs completely, as `restore_letters` takes them.

        A record has `letter`, `steps` and, if the job is still failed, `job` and `events`. What belongs to users is in
        `private`: the arguments that the job was submitted with, if it has others now, and of a job that is still
        failed its arguments, results, stages and signals, and the key or version that it was submitted with. Instants are ISO 8601, so that it fits every store.
        """
        ...

    async def delete_letters(self, seen: Sequence[Seen]) -> list[str]:
        """Delete letters that have not changed since they were read, with their jobs if still failed; return their ids.

        Not one whose plan has begun since, nor one whose job another waits for. A ticket that was not notified stays, and
        keeps in its facts what its notification says.
        """
        ...

    async def restore_letters(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Restore letters and jobs as they were, each completely or not at all; return their job ids.

        One whose job or letter exists is skipped. A letter counts as new for its retention, and its version is
        the next: a caller that has seen it before it was archived cannot delete it. A job has its key and its version again,
        unless another was submitted with them since; its history says so then.
        """
        ...

    async def purge_finished(self, *, older_than: timedelta, limit: int) -> int:
        """Delete jobs that ended that long ago, with their arguments, stages and history; return how many.

        Not those that failed, which are deleted only with their letter, nor those with a dead letter, nor those that another
        job waits for, nor those with an announcement to be rendered.
        """
        ...

    async def purge_keys(self, *, older_than: timedelta, limit: int) -> int:
        """Delete keys and versions that were taken that long ago, and whose job is deleted; return how many.

        Not a key under which a live job has submitted another: it would submit it again in its next run.
        """
        ...

    async def purge_plans(self, *, older_than: timedelta, limit: int) -> int:
        """Delete plans that are not running, have not changed for that long, and contain no letter; return how many."""
        ...

    async def purge_tickets(self, *, older_than: timedelta, limit: int) -> int:
        """Delete tickets that were notified that long ago, and have no letter; return how many."""
        ...
