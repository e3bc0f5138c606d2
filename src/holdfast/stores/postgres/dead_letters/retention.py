"""Retention in PostgreSQL: ended jobs are purged, dead letters are archived and restored."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.core.dead_letters.letter import letter_id
from holdfast.ports.dead_letters import Seen
from holdfast.stores.letter_rows import (
    KEY_LOST,
    Columns,
    LetterRows,
    facts_from,
    record_from,
    rows_from_record,
)
from holdfast.stores.postgres.connections import LONG_ANSWER, Connections
from holdfast.stores.postgres.dead_letters.purging import PostgresPurgeScan
from holdfast.stores.queries import Queries
from holdfast.stores.rows import unzipped

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Connection

PARTS = ("letters", "jobs", "steps", "stages", "events", "signals", "keys", "versions")
"""The parts of a letter's record. Letters are read first: they are locked, so that the others are of the same moment."""


class PostgresRetention:
    """The `RetentionStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql
        self._finished_walk = PostgresPurgeScan(sql["purge_finished"], str(UUID(int=0)))
        self._stubs_walk = PostgresPurgeScan(
            sql["purge_stubs"], datetime(1970, 1, 1, tzinfo=UTC), str(UUID(int=0))
        )
        self._keys_walk = PostgresPurgeScan(sql["purge_keys"], "", "", "")
        self._versions_walk = PostgresPurgeScan(sql["purge_versions"], "", "", "", 0)

    async def letters_to_archive(
        self, *, older_than: timedelta | None, beyond: int | None, limit: int
    ) -> list[Seen]:
        rows = await self._connections.fetch(
            self._sql["letters_to_archive"], older_than, beyond, limit, timeout=LONG_ANSWER
        )
        return [(row["job_id"], row["version"]) for row in rows]

    async def letter_records(self, job_ids: Sequence[str]) -> list[dict[str, Any]]:
        ids = [letter_id(job_id) for job_id in job_ids]
        async with self._connections.acquire() as connection, connection.transaction():
            letters, jobs, *others = [
                await connection.fetch(self._sql[f"archive_{name}"], ids, timeout=LONG_ANSWER)
                for name in PARTS
            ]
        job_of = {row["id"]: row for row in jobs}
        parts = dict(zip(PARTS[2:], map(_by_job, others), strict=True))
        return [_record(letter, job_of.get(letter["job_id"]), parts) for letter in letters]

    async def delete_letters(self, seen: Sequence[Seen]) -> list[str]:
        async with self._connections.acquire() as connection, connection.transaction():
            for locked in ("lock_plans", "lock_failed_jobs"):
                await connection.fetch(self._sql[locked], [job_id for job_id, _ in seen])
            rows = await connection.fetch(self._sql["lock_letters_to_delete"], *unzipped(seen))
            found = [row["job_id"] for row in rows]
            await self._keep_facts(connection, found)
            await connection.execute(self._sql["delete_letters"], found)
        return found

    async def _keep_facts(self, connection: "Connection", job_ids: Sequence[str]) -> None:
        """Keep the facts that the pending notifications of letters to be deleted need."""
        tickets = await connection.fetch(self._sql["lock_tickets"], job_ids)
        unnotified = sorted({row["job_id"] for row in tickets if not row["notified"]})
        if unnotified:
            letters = await connection.fetch(self._sql["archive_letters"], unnotified)
            ids, facts = [row["job_id"] for row in letters], [facts_from(row) for row in letters]
            await connection.execute(self._sql["keep_facts"], ids, facts)

    async def restore_letters(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        return [kept.letter["job_id"] for kept in map(rows_from_record, records) if await self._restore(kept)]

    async def _restore(self, kept: LetterRows) -> bool:
        """Restore one letter, with its job if the record has it; return false if either exists."""
        job_id = kept.letter["job_id"]
        async with self._connections.acquire() as connection, connection.transaction():
            if kept.job is not None:
                if not await connection.fetch(self._sql["restore_job"], _json(kept.job)):
                    return False
                await connection.execute(self._sql["delete_triggered_letter"], job_id)
                await connection.execute(self._sql["delete_stub"], job_id)
                await connection.execute(
                    self._sql["restore_rows"],
                    job_id,
                    kept.args or "",
                    *map(_json, (kept.stages, kept.signals, kept.events)),
                    timeout=LONG_ANSWER,
                )
                await self._reserve_keys(connection, kept)
            values = [_json(kept.letter), _json(kept.steps), kept.original_args]
            return bool(await connection.fetch(self._sql["restore_letter"], *values))

    async def _reserve_keys(self, connection: "Connection", kept: LetterRows) -> None:
        """Reserve the keys of a restored job again; record it in the history if another job has one by now."""
        job_id = kept.letter["job_id"]
        taken = await connection.fetch(self._sql["restore_keys"], job_id, _json(kept.keys))
        for row in kept.versions:
            await connection.execute(self._sql["lock_subject"], row["owner"], row["name"], row["subject"])
        taken += await connection.fetch(self._sql["restore_versions"], job_id, _json(kept.versions))
        if len(taken) < len(kept.keys) + len(kept.versions):
            await connection.execute(self._sql["add_warnings"], [job_id], KEY_LOST)

    async def purge_finished(self, *, older_than: timedelta, limit: int) -> int:
        return await self._finished_walk.purge(self._connections, older_than, limit)

    async def purge_keys(self, *, older_than: timedelta, limit: int) -> int:
        purged = 0
        for walk in (self._stubs_walk, self._keys_walk, self._versions_walk):
            purged += await walk.purge(self._connections, older_than, limit - purged)
        return purged

    async def purge_plans(self, *, older_than: timedelta, limit: int) -> int:
        return len(await self._connections.fetch(self._sql["purge_plans"], older_than, limit))

    async def purge_tickets(self, *, older_than: timedelta, limit: int) -> int:
        return len(await self._connections.fetch(self._sql["purge_tickets"], older_than, limit))


def _by_job(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Group rows that are sorted by job."""
    return {job_id: list(found) for job_id, found in groupby(rows, key=itemgetter("job_id"))}


def _record(letter: Any, job: Any | None, parts: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, Any]:
    found = {name: rows.get(letter["job_id"], []) for name, rows in parts.items()}
    steps = found.pop("steps")
    if job is None:
        return record_from(LetterRows(letter, steps, letter["original_args"]))
    return record_from(LetterRows(letter, steps, letter["original_args"], job, job["args"], **found))


def _json(rows: Columns | Sequence[Columns]) -> str:
    """Return rows as JSON, which PostgreSQL reads back into the columns of a table."""
    return json.dumps(rows, default=datetime.isoformat)
