"""The archiver: it moves dead letters to the archive and deletes records, each when its retention period is over."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Any

from holdfast.core.dead_letters.archive_format import (
    LetterEntry,
    dump_manifest,
    encrypt_record,
    manifest_name,
    manifest_of,
    pack,
    unpack,
)
from holdfast.core.dead_letters.ticket import TicketKind
from holdfast.core.errors import StoreUnavailable
from holdfast.core.failures.escalation import Escalation
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import OptionalService
from holdfast.ports.archive import Archive, Encrypter
from holdfast.ports.dead_letters import Seen

SCHEDULE = "@retention"
"""The name of the stored schedule by which workers take turns."""

EVERY = timedelta(minutes=1)
BATCH = 500
READ_BATCH = 25
FULL_FILE = 16_000_000
"""Characters of arguments and results after which a file of the archive is full."""

RECEIVED = timedelta(days=14)
"""How long received messages are remembered; the keys of their jobs are kept longer."""

MOST_BATCHES = 20
"""Most batches of one turn, so that it delays no other writer for long; the next turn goes on."""

COUNTED = 100_000
"""Most letters that `due` counts."""

PAUSE = 0.05
"""Seconds between two batches, in which other sessions write."""

DAY = timedelta(days=1)


class Archiver(OptionalService):
    """Archives and deletes by the retention options. Workers take turns at it."""

    name = "archiver"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._metrics = runtime.metrics
        self._options = runtime.letters

    async def run_once(self) -> float:
        """Do what is due, if it is this worker's turn; return the seconds until the next call."""
        if await self._take_turn():
            await self._watch()
            if self._options.archive is not None:
                await self._archive_in_turn()
            await self._purge()
        return self._jittered(EVERY.total_seconds())

    async def _archive_in_turn(self) -> None:
        """Archive what is due. If that fails, the other records are still deleted."""
        try:
            await self.archive(batches=MOST_BATCHES)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - it is reported, and retried at the next turn
            return

    async def _take_turn(self) -> bool:
        now, last_ticks = await self._store.schedules.last_ticks([SCHEDULE])
        if SCHEDULE not in last_ticks:
            await self._store.schedules.begin([SCHEDULE])
            return False
        return now - last_ticks[SCHEDULE] >= EVERY and await self._store.schedules.advance(
            SCHEDULE, last_ticks[SCHEDULE], now, []
        )

    async def _watch(self) -> None:
        """Raise an alarm when more jobs fail within a day than configured, and clear it when that is over."""
        most = self._options.retention.letters_a_day
        if most is None:
            return
        deaths = await self._store.dead_letters.count_since(DAY)
        if deaths <= most:
            await self._store.tickets.clear_alarm(TicketKind.MANY)
            return
        title = f"{deaths} jobs have failed within a day, more than {most}"
        facts = {"title": title, "level": Escalation.ALERT, "deaths": deaths}
        await self._store.tickets.raise_alarm(TicketKind.MANY, facts)

    async def due(self, *, older_than: timedelta | None = None, beyond: int | None = None) -> int:
        """Count the letters that `archive` would move. Raises `ConfigError` if there is no archive."""
        self._archive()
        return len(await self._due(older_than, beyond, COUNTED))

    async def archive(
        self, *, older_than: timedelta | None = None, beyond: int | None = None, batches: int | None = None
    ) -> int:
        """Archive letters that need not be kept, then delete them; return how many.

        By the retention, or those *older_than* or *beyond* what is given; all of them, or at most *batches*. If the
        archive fails, what was not archived is kept, an alarm is raised, and the error goes to the caller; the alarm is
        cleared when letters were archived again, or none is due. Raises `ConfigError` if there is no archive.
        """
        self._archive()  # without an archive the caller gets an error, and no alarm is raised
        done = 0
        seen: list[Seen] = []
        try:
            for _ in islice(count(), batches):
                seen = await self._due(older_than, beyond, BATCH)
                gone = (
                    await self._store.retention.delete_letters(await self._archive_file(seen)) if seen else []
                )
                if not gone:
                    break
                done += len(gone)
                await asyncio.sleep(PAUSE)
        except StoreUnavailable:  # the store fails, not the archive, and an alarm could not be stored
            raise
        except Exception as error:  # any error: the letters are kept until an operator looks
            await self._report_failure(error, letters=len(seen))
            raise
        if done or (not seen and older_than is None and beyond is None):
            await self._store.tickets.clear_alarm(TicketKind.ARCHIVE)
        if done:
            self._metrics.count("letters_archived", done)
            self._logger.info("dead letters archived", letters=done)
        return done

    async def _due(self, older_than: timedelta | None, beyond: int | None, limit: int) -> list[Seen]:
        if older_than is None and beyond is None:
            older_than, beyond = self._options.retention.letters, self._options.retention.most_letters
        return await self._store.retention.letters_to_archive(
            older_than=older_than, beyond=beyond, limit=limit
        )

    async def _archive_file(self, seen: Sequence[Seen]) -> list[Seen]:
        """Put as many of these letters into the archive as fit into one file, and return those."""
        records = await self._records_for_a_file([job_id for job_id, _ in seen])
        if records:  # another worker may have archived them
            await self._put(records)
        kept = {record["letter"]["job_id"] for record in records}
        return [one for one in seen if one[0] in kept]

    async def _report_failure(self, error: Exception, *, letters: int) -> None:
        """Log that letters cannot be archived, and raise an alarm with the reason."""
        message = self._runtime.redactor(str(error) or type(error).__name__)
        self._logger.error("archive failed", letters=letters, message=message)
        title = f"dead letters cannot be archived, and are kept: {message}"
        await self._store.tickets.raise_alarm(TicketKind.ARCHIVE, {"title": title, "level": Escalation.ALERT})

    async def _records_for_a_file(self, job_ids: Sequence[str]) -> list[Mapping[str, Any]]:
        """Read letters and their jobs until a file is full: arguments and results may be a megabyte per job."""
        records: list[Mapping[str, Any]] = []
        size = 0
        for first in range(0, len(job_ids), READ_BATCH):
            found = await self._store.retention.letter_records(job_ids[first : first + READ_BATCH])
            records += found
            size += sum(map(_weight, found))
            if size > FULL_FILE:
                break
        return records

    async def _put(self, records: Sequence[Mapping[str, Any]]) -> None:
        archive, encrypter = self._archive(), await self._encrypter()
        now = await self._store.now()
        # In a thread: encrypting and compressing some megabytes would hold up every job of this worker.
        packed = await self._runtime.executor.run(
            lambda: pack([encrypt_record(record, encrypter.encrypt) for record in records])
        )
        manifest = manifest_of(packed, [_entry(record["letter"]) for record in records], at=now)
        await archive.put(manifest.name, packed.data)
        written = await archive.get(manifest.name, at_most=manifest.bytes)
        await self._runtime.executor.run(
            lambda: unpack(written, manifest)
        )  # it can be read as it was written
        # The manifest comes last: a file that has one is complete.
        await archive.put(manifest_name(manifest.name), dump_manifest(manifest, encrypter.encrypt))

    def _archive(self) -> Archive:
        return self._options.named_archive()

    async def _encrypter(self) -> Encrypter:
        return self._options.encrypter_of(await self._store.redaction_key())

    async def _purge(self) -> None:
        """Delete finished jobs, replay plans, tickets, keys and messages whose retention period is over."""
        retention = self._options.retention
        if retention.finished is not None:
            await self._purge_batches("jobs_purged", retention.finished, self._store.retention.purge_finished)
            await self._store.retention.purge_plans(older_than=retention.finished, limit=BATCH)
            await self._store.retention.purge_tickets(older_than=retention.finished, limit=BATCH)
        await self._purge_batches("messages_purged", RECEIVED, self._store.inbox.purge)
        if retention.keys is not None:
            await self._purge_batches("keys_purged", retention.keys, self._store.retention.purge_keys)
        if retention.messages is not None:
            await self._purge_batches("messages_purged", retention.messages, self._store.outbox.purge)

    async def _purge_batches(
        self, name: str, older_than: timedelta, purge: Callable[..., Awaitable[int]]
    ) -> None:
        total = 0
        for _ in range(MOST_BATCHES):
            gone = await purge(older_than=older_than, limit=BATCH)
            total += gone
            if gone < BATCH:
                break
            await asyncio.sleep(PAUSE)
        if total:
            self._metrics.count(name, total)
            self._logger.info("records purged", what=name.removesuffix("_purged"), count=total)


def _weight(record: Mapping[str, Any]) -> int:
    """Return how many characters a job's arguments and results have."""
    private = record["private"]
    results = [stage["result"] for stage in private.get("stages", ())]
    return sum(len(text or "") for text in (private.get("args"), private.get("late_result"), *results))


def _entry(letter: Mapping[str, Any]) -> LetterEntry:
    return LetterEntry(
        letter["job_id"],
        letter["name"],
        letter["fingerprint"],
        datetime.fromisoformat(letter["last_failure_at"]),
    )
