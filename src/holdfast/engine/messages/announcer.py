"""The announcer: it renders the announcements of jobs into messages of the outbox."""

from collections.abc import Sequence
from datetime import timedelta

from pydantic import BaseModel

from holdfast.core.dead_letters.ticket import TicketKind
from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.core.failures.escalation import Escalation
from holdfast.core.jobs.job import Job
from holdfast.core.messages.announcements import (
    AnnouncedFailure,
    Announcement,
    AnnouncementKind,
    PendingAnnouncement,
    RenderedAnnouncement,
)
from holdfast.core.messages.outbox import LONGEST_FIELD, NewMessage
from holdfast.engine.messages.new_message import Aggregate, Reply, new_message
from holdfast.engine.registry import JobSpec
from holdfast.engine.service import OptionalService

EVERY = 1.0
"""Average seconds between two runs, unless it is woken."""

BATCH = 100

LEASE = timedelta(minutes=1)
"""How long a batch belongs to the worker that took it."""


class Announcer(OptionalService):
    """Renders announcements of the jobs that this process declares, if one of those announces anything.

    The functions of the application may raise: their announcement is postponed, for up to an hour, and never given up.
    """

    name = "announcer"
    shortest_rest = 0.05

    async def run_once(self) -> float:
        """Render what is due; return the seconds until the next run."""
        registry = self._runtime.registry
        if not any(spec.announce for spec in registry):
            return self._jittered(EVERY)
        taken = await self._store.announcements.take(registry.names, limit=BATCH, lease=LEASE)
        if not taken:
            return self._jittered(EVERY)
        rendered = [each for row in taken if (each := await self._render(row)) is not None]
        if rendered:
            published = await self._store.announcements.publish(rendered)
            self._runtime.metrics.count("announcements_rendered", published)
            if any(each.taken.alarming for each in rendered):
                await self._store.tickets.clear_alarm(TicketKind.ANNOUNCEMENT)
        return 0.0  # of each job, only the oldest announcement was taken

    async def _render(self, taken: PendingAnnouncement) -> RenderedAnnouncement | None:
        """Render an announcement; `None` means that it was postponed."""
        try:
            return RenderedAnnouncement(taken, await self._messages(taken))
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the application's own function, and what it returned
            await self._postpone(taken, error)
            return None

    async def _messages(self, taken: PendingAnnouncement) -> tuple[NewMessage, ...]:
        spec = self._runtime.registry.get(taken.name)
        render = None if spec is None else spec.announce.get(taken.kind)
        if spec is None or render is None:
            return ()  # the job announced this when it was submitted, and does not any more
        job = await self._store.get(taken.job_id)
        keys = await self._store.keys_of([taken.job_id])
        found = render(announcement_of(taken, job, spec, key=keys.get(taken.job_id)))
        replies, registry, job_name = _replies(found), self._runtime.registry, spec.name[:LONGEST_FIELD]
        messages = tuple(
            new_message(
                registry.message_type_of(type(reply.message)),
                reply.message,
                id=self._runtime.ids.job_id(),
                otherwise=Aggregate(job_name, taken.job_id),
                reply_to=reply.to,
                key=taken.message_key(number),
                job_id=taken.job_id,
                trace=job.trace,
            )
            for number, reply in enumerate(replies)
        )
        for reply, message in zip(replies, messages, strict=True):
            if reply.to is not None and message.routing_key is None:
                self._logger.warning(
                    "reply route refused", job_id=taken.job_id, name=taken.name, routing_key=reply.to
                )
        return messages

    async def _postpone(self, taken: PendingAnnouncement, error: Exception) -> None:
        message = self._runtime.describe(error)
        self._runtime.metrics.count("announcements_failed")
        self._logger.warning(
            "announcement failed",
            job_id=taken.job_id,
            name=taken.name,
            kind=taken.kind.value,
            tries=taken.tries,
            message=message,
        )
        await self._store.announcements.postpone(taken, taken.pause)
        if taken.alarming:
            title = f"job {taken.name} cannot announce that it is {taken.kind.value}: {message}"
            facts = {
                "title": title,
                "level": Escalation.ALERT,
                "name": taken.name,
                "announced_job": taken.job_id,
            }
            await self._store.tickets.raise_alarm(TicketKind.ANNOUNCEMENT, facts)


def announcement_of(taken: PendingAnnouncement, job: Job, spec: JobSpec, *, key: str | None) -> Announcement:
    """Return what the function that renders gets. Raises `PayloadInvalid` for arguments that cannot be read any more."""
    is_result = taken.kind is AnnouncementKind.COMPLETED and job.result is not None
    return Announcement(
        job_id=taken.job_id,
        name=spec.name,
        kind=taken.kind,
        generation=taken.generation,
        attempt=taken.attempt,
        at=taken.at,
        args=spec.signature.args_by_name(job.args),
        result=spec.signature.load_result(job.result or "null") if is_result else None,
        failure=AnnouncedFailure.load(taken.failure),
        key=key,
        subject=job.subject,
        version=job.version,
        late=job.late_at is not None and job.generation == taken.generation,
        again=taken.again,
    )


def _replies(found: object) -> Sequence[Reply]:
    """Return the messages that a function has returned. Raises `ConfigError` for anything else."""
    replies: list[Reply] = []
    several = isinstance(found, list | tuple) and not isinstance(found, Reply)
    for each in () if found is None else found if several else (found,):  # type: ignore[attr-defined]  # a list, then
        reply = each if isinstance(each, Reply) else Reply(each, None)
        if not isinstance(reply.message, BaseModel):
            raise ConfigError(
                f"announce= has returned a {type(reply.message).__name__}; return a message, a `Reply`, a list of them, or None"
            )
        replies.append(reply)
    return replies
