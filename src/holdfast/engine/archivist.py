"""The archivist: it moves dead letters to the archive when their time has come, and deletes what nobody needs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Any

from holdfast.core.archiving import (
    LetterEntry,
    dump_manifest,
    manifest_name,
    manifest_of,
    pack,
    seal_record,
    unpack,
)
from holdfast.core.errors import StoreUnavailable
from holdfast.core.exhaustion import Follow
from holdfast.core.tickets import TicketKind
from holdfast.engine.parts import Parts
from holdfast.ports.archive import Archive, Sealer
from holdfast.ports.letters import Seen

TURN = "@retention"
"""The mark by which workers take turns."""

EVERY = timedelta(minutes=1)
BATCH = 500
HANDFUL = 25
FULL_FILE = 16_000_000
"""Characters of arguments and results after which a file of the archive is full."""

MOST_BATCHES = 20
"""How much one turn deletes at most, so that nobody waits for it; the next turn goes on."""

COUNTED = 100_000
"""How many letters are counted at most before they are archived."""

BREATH = 0.05
"""Seconds between two batches, in which others write."""

DAY = timedelta(days=1)


class Archivist:
    """Keeps what has ended for as long as it is to be kept. Workers take turns at it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._journal = parts.journal
        self._metrics = parts.metrics
        self._options = parts.letters

    async def run_once(self) -> float:
        """Do what is due, if it is this worker's turn; return the seconds until the next one may be."""
        if await self._has_turn():
            await self._watch()
            if self._options.archive is not None:
                await self._archive_in_turn()
            await self._purge()
        return EVERY.total_seconds() * (0.5 + self._parts.dice.roll())

    async def _archive_in_turn(self) -> None:
        """Archive what is due. If that fails, whatever else has had its time still leaves."""
        try:
            await self.archive(batches=MOST_BATCHES)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - it was told, and is tried again at the next turn
            return

    async def _has_turn(self) -> bool:
        now, marks = await self._store.schedule_marks([TURN])
        if TURN not in marks:
            await self._store.begin_schedules([TURN])
            return False
        return now - marks[TURN] >= EVERY and await self._store.advance_schedule(TURN, marks[TURN], now, [])

    async def _watch(self) -> None:
        """Raise an alarm when more jobs fail within a day than is usual, and clear it when that is over."""
        most = self._options.retention.letters_a_day
        if most is None:
            return
        deaths = await self._store.deaths_within(DAY)
        if deaths <= most:
            await self._store.clear_alarm(TicketKind.MANY)
            return
        title = f"{deaths} jobs have failed within a day, more than {most}"
        facts = {"title": title, "level": Follow.ALERT, "deaths": deaths}
        await self._store.raise_alarm(TicketKind.MANY, facts)

    async def due(self, *, older_than: timedelta | None = None, beyond: int | None = None) -> int:
        """Count the letters that `archive` would move. Raises `ConfigError` if there is no archive."""
        self._archive()
        return len(await self._due(older_than, beyond, COUNTED))

    async def archive(
        self, *, older_than: timedelta | None = None, beyond: int | None = None, batches: int | None = None
    ) -> int:
        """Archive letters that need not be kept, then delete them; count them.

        By the retention, or those *older_than* or *beyond* what is given; all of them, or so many *batches*. If the
        archive fails, what was not archived is kept, an alarm is raised, and the error goes to the caller; the alarm is
        cleared when letters were archived again, or none has had its time. Raises `ConfigError` if there is no archive.
        """
        self._archive()  # whoever has none hears of it, and no alarm
        done = 0
        seen: list[Seen] = []
        try:
            for _ in islice(count(), batches):
                seen = await self._due(older_than, beyond, BATCH)
                gone = await self._store.forget_letters(await self._put_away(seen)) if seen else []
                if not gone:
                    break
                done += len(gone)
                await asyncio.sleep(BREATH)
        except StoreUnavailable:  # it is not the archive that fails, and an alarm has no place to be kept
            raise
        except Exception as error:  # whatever it is, these letters stay until somebody looks
            await self._tell_failure(error, letters=len(seen))
            raise
        if done or (not seen and older_than is None and beyond is None):
            await self._store.clear_alarm(TicketKind.ARCHIVE)
        if done:
            self._metrics.count("letters_archived", done)
            self._journal.info("archived", letters=done)
        return done

    async def _due(self, older_than: timedelta | None, beyond: int | None, limit: int) -> list[Seen]:
        if older_than is None and beyond is None:
            older_than, beyond = self._options.retention.letters, self._options.retention.most_letters
        return await self._store.letters_to_archive(older_than=older_than, beyond=beyond, limit=limit)

    async def _put_away(self, seen: Sequence[Seen]) -> list[Seen]:
        """Put as many of these letters into the archive as fit into one file, and name them."""
        records = await self._records_for_a_file([job_id for job_id, _ in seen])
        if records:  # somebody else may have been quicker
            await self._put(records)
        kept = {record["letter"]["job_id"] for record in records}
        return [one for one in seen if one[0] in kept]

    async def _tell_failure(self, error: Exception, *, letters: int) -> None:
        """Have somebody hear that letters cannot be archived, and why."""
        told = self._parts.redactor(str(error) or type(error).__name__)
        self._journal.error("archive failed", letters=letters, message=told)
        title = f"dead letters cannot be archived, and are kept: {told}"
        await self._store.raise_alarm(TicketKind.ARCHIVE, {"title": title, "level": Follow.ALERT})

    async def _records_for_a_file(self, job_ids: Sequence[str]) -> list[Mapping[str, Any]]:
        """Read letters and their jobs until a file is full: each job may have a megabyte of arguments, and of results."""
        records: list[Mapping[str, Any]] = []
        size = 0
        for first in range(0, len(job_ids), HANDFUL):
            found = await self._store.letter_records(job_ids[first : first + HANDFUL])
            records += found
            size += sum(map(_weight, found))
            if size > FULL_FILE:
                break
        return records

    async def _put(self, records: Sequence[Mapping[str, Any]]) -> None:
        archive, sealer = self._archive(), await self._sealer()
        now = await self._store.now()
        # In a thread: sealing and compressing some megabytes would hold up every job of this worker.
        packed = await self._parts.executor.run(
            lambda: pack([seal_record(record, sealer.seal) for record in records])
        )
        manifest = manifest_of(packed, [_entry(record["letter"]) for record in records], at=now)
        await archive.put(manifest.name, packed.data)
        written = await archive.get(manifest.name, at_most=manifest.bytes)
        await self._parts.executor.run(lambda: unpack(written, manifest))  # it can be read as it was written
        # The manifest comes last: whatever has one is whole.
        await archive.put(manifest_name(manifest.name), dump_manifest(manifest, sealer.seal))

    def _archive(self) -> Archive:
        return self._options.named_archive()

    async def _sealer(self) -> Sealer:
        return self._options.sealer_of(await self._store.redaction_key())

    async def _purge(self) -> None:
        """Delete finished jobs, what is left of their repair, and keys, when they were kept long enough."""
        retention = self._options.retention
        if retention.finished is not None:
            await self._purged("jobs_purged", retention.finished, self._store.purge_finished)
            await self._store.purge_plans(older_than=retention.finished, limit=BATCH)
            await self._store.purge_tickets(older_than=retention.finished, limit=BATCH)
        if retention.keys is not None:
            await self._purged("keys_purged", retention.keys, self._store.purge_keys)

    async def _purged(self, name: str, older_than: timedelta, purge: Callable[..., Awaitable[int]]) -> None:
        total = 0
        for _ in range(MOST_BATCHES):
            gone = await purge(older_than=older_than, limit=BATCH)
            total += gone
            if gone < BATCH:
                break
            await asyncio.sleep(BREATH)
        if total:
            self._metrics.count(name, total)
            self._journal.info("purged", what=name.removesuffix("_purged"), count=total)


def _weight(record: Mapping[str, Any]) -> int:
    """Tell how many characters a job's arguments and results have."""
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
