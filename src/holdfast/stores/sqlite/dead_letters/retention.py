"""Retention in a SQLite file: ended jobs are purged, dead letters are archived and restored."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.dead_letters.letter import letter_id
from holdfast.ports import Clock
from holdfast.ports.dead_letters import Seen
from holdfast.stores.letter_rows import (
    KEY_LOST,
    Columns,
    LetterRows,
    facts_from,
    first_id_at,
    record_from,
    rows_from_record,
)
from holdfast.stores.sqlite.dead_letters.purging import SqlitePurgeScan
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.rows import with_instants
from holdfast.stores.sqlite.times import micros
from holdfast.stores.sqlite.writer import Writer

OF_A_JOB = ("delete_finished", "delete_payloads", "delete_events", "delete_signals", "delete_waits")
OF_A_LETTER = ("delete_letters", "delete_letter_steps")

WALK = 1000
"""The number of ended jobs read in one batch."""

BEYOND_TIME = ("04", "g")
"""Ids between these contain no time of this century."""


class _Walks:
    """The positions of the scans that purge keys."""

    def __init__(self) -> None:
        self.stubs = SqlitePurgeScan("outdated_stubs", finished_at=0, id="")
        self.keys = SqlitePurgeScan("outdated_keys", owner="", name="", key="")
        self.versions = SqlitePurgeScan("outdated_versions", owner="", name="", subject="", version=0)


class SqliteRetention:
    """The `RetentionStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._walks = _Walks()

    async def letters_to_archive(
        self, *, older_than: timedelta | None, beyond: int | None, limit: int
    ) -> list[Seen]:
        until = None if older_than is None else micros(self._clock.now() - older_than)
        values = {"until": until, "beyond": beyond, "limit": limit}
        rows = await self._reader.rows(SQL["letters_to_archive"], values)
        return [(row["job_id"], row["version"]) for row in rows]

    async def letter_records(self, job_ids: Sequence[str]) -> list[dict[str, Any]]:
        ids = [letter_id(job_id) for job_id in job_ids]
        found = await self._reader.read(lambda connection: _read_letters(connection, ids))
        return [record_from(kept) for kept in found]

    async def delete_letters(self, seen: Sequence[Seen]) -> list[str]:
        return await self._writer.write(lambda connection, now: _delete_letters(connection, seen, now))

    async def restore_letters(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        kept = [rows_from_record(record) for record in records]
        return await self._writer.write(
            lambda connection, now: [one.letter["job_id"] for one in kept if _restore(connection, one, now)]
        )

    async def purge_finished(self, *, older_than: timedelta, limit: int) -> int:
        until = self._clock.now() - older_than
        found = await self._outdated(until, limit)
        return await self._writer.write(lambda connection, now: _purge(connection, found, micros(until), now))

    async def _outdated(self, until: datetime, limit: int) -> list[str]:
        """Scan old jobs until enough are found, in bounded batches, between which other reads run."""
        found: list[str] = []
        for after, before in (("", first_id_at(until)), BEYOND_TIME):
            reached: str | None = after
            while reached is not None and len(found) < limit:
                walk = {"after": reached, "before": before, "until": micros(until), "walk": WALK}
                [row] = await self._reader.rows(SQL["outdated_jobs"], walk)
                found += json.loads(row["ids"])
                reached = row["reached"]
        return found[:limit]

    async def purge_keys(self, *, older_than: timedelta, limit: int) -> int:
        until = micros(self._clock.now() - older_than)
        return await self._writer.write(
            lambda connection, _: _purge_keys(connection, self._walks, until, limit)
        )

    async def purge_plans(self, *, older_than: timedelta, limit: int) -> int:
        return await self._writer.execute(SQL["purge_plans"], self._outdated_by(older_than, limit))

    async def purge_tickets(self, *, older_than: timedelta, limit: int) -> int:
        return await self._writer.execute(SQL["purge_tickets"], self._outdated_by(older_than, limit))

    def _outdated_by(self, older_than: timedelta, limit: int) -> dict[str, int]:
        return {"until": micros(self._clock.now() - older_than), "limit": limit}


def _stored(columns: Columns) -> dict[str, Any]:
    return {name: micros(value) if isinstance(value, datetime) else value for name, value in columns.items()}


def _read_letters(connection: sqlite3.Connection, job_ids: Sequence[str]) -> list[LetterRows]:
    """Read complete letters, all as of one moment."""
    connection.execute("BEGIN")
    try:
        found = [_read_letter(connection, job_id) for job_id in job_ids]
    finally:
        connection.execute("ROLLBACK")
    return [kept for kept in found if kept is not None]


def _read_letter(connection: sqlite3.Connection, job_id: str) -> LetterRows | None:
    letters = _rows(connection, "letter", job_id)
    if not letters:
        return None
    jobs = _rows(connection, "archive_job", job_id)
    steps, original = _rows(connection, "letter_steps", job_id), _rows(connection, "original_args", job_id)
    kept = LetterRows(letters[0], steps, original[0]["args"] if original else None)
    if not jobs:
        return kept
    return kept._replace(
        job=jobs[0],
        args=jobs[0]["args"],
        stages=_rows(connection, "archive_stages", job_id),
        events=_rows(connection, "events", job_id),
        signals=_rows(connection, "archive_signals", job_id),
        keys=_rows(connection, "archive_keys", job_id),
        versions=_rows(connection, "archive_versions", job_id),
    )


def _rows(connection: sqlite3.Connection, statement: str, job_id: str) -> list[dict[str, Any]]:
    rows = connection.execute(SQL[statement], {"id": job_id, "owner": None})
    with closing(rows):
        return [with_instants(row) for row in rows]


def _delete_letters(connection: sqlite3.Connection, seen: Sequence[Seen], now: int) -> list[str]:
    as_seen = {"seen": json.dumps(list(seen))}
    ids = [row["job_id"] for row in connection.execute(SQL["letters_to_delete"], as_seen)]
    named = {"ids": json.dumps(ids), "owner": None, "generation": None}
    failed = [row["id"] for row in connection.execute(SQL["failed_jobs"], named)]
    unnotified = [row["job_id"] for row in connection.execute(SQL["unnotified_jobs"], named)]
    for job_id in unnotified:  # they are notified without their letter
        [letter] = _rows(connection, "letter", job_id)
        connection.execute(SQL["keep_facts"], {"id": job_id, "facts": facts_from(letter)})
    for statement in (*OF_A_LETTER, "delete_tickets", "delete_original_args"):
        connection.execute(SQL[statement], named)
    _delete_jobs(connection, failed, now)
    return ids


def _delete_jobs(connection: sqlite3.Connection, job_ids: Sequence[str], now: int) -> None:
    """Delete ended jobs with all their rows except keys; keep a stub of those that have a key."""
    named = {"ids": json.dumps(list(job_ids)), "restart": True, "now": now}
    connection.execute(SQL["add_stubs"], named)
    for statement in (*OF_A_JOB, "delete_stages"):
        connection.execute(SQL[statement], named)


def _restore(connection: sqlite3.Connection, kept: LetterRows, now: int) -> bool:
    """Restore one letter, and its job, unless one of them exists."""
    job_id = kept.letter["job_id"]
    [is_here] = connection.execute(
        SQL["is_stored"], {"id": job_id, "with_job": kept.job is not None}
    ).fetchone()
    if is_here:
        return False
    if kept.job is not None:
        _restore_job(connection, kept, kept.job)
        connection.execute(SQL["delete_stubs"], {"ids": json.dumps([job_id])})
        _reserve_keys(connection, kept, now)
    for statement in (
        *OF_A_LETTER,
        "delete_triggered_tickets",
    ):  # what a trigger wrote at the job's end
        connection.execute(SQL[statement], {"ids": json.dumps([job_id])})
    connection.execute(SQL["restore_letter"], {**_stored(kept.letter), "now": now})
    for seq, step in enumerate(kept.steps, start=1):
        connection.execute(SQL["restore_step"], {**_stored(step), "id": job_id, "seq": seq})
    if kept.original_args is not None:
        connection.execute(SQL["restore_original_args"], {"id": job_id, "args": kept.original_args})
    return True


def _restore_job(connection: sqlite3.Connection, kept: LetterRows, job: Columns) -> None:
    connection.execute(SQL["restore_job"], _stored(job))
    # Apart: a trigger announces the end of a job that is inserted with these values.
    announces = {name: job[name] or 0 for name in ("announces", "runs", "announced_again")}
    connection.execute(SQL["restore_announces"], {**announces, "id": job["id"]})
    connection.execute(SQL["restore_args"], {"id": job["id"], "args": kept.args})
    rows = {"restore_stage": kept.stages, "restore_event": kept.events, "restore_signal": kept.signals}
    for statement, found in rows.items():
        connection.executemany(SQL[statement], [{**_stored(row), "id": job["id"]} for row in found])


def _reserve_keys(connection: sqlite3.Connection, kept: LetterRows, now: int) -> None:
    """Reserve the keys of a restored job again; record it in the history if another job has one by now."""
    job_id = kept.letter["job_id"]
    taken = 0
    for statement, rows in (("restore_key", kept.keys), ("restore_version", kept.versions)):
        for row in rows:
            taken += connection.execute(SQL[statement], {**_stored(row), "id": job_id}).rowcount
    if taken < len(kept.keys) + len(kept.versions):
        connection.execute(SQL["add_warnings"], {"ids": json.dumps([job_id]), "meta": KEY_LOST, "now": now})


def _purge(connection: sqlite3.Connection, found: Sequence[str], until: int, now: int) -> int:
    """Delete those of the jobs that are still outdated: one may have been retried since."""
    [ids] = connection.execute(
        SQL["still_outdated"], {"ids": json.dumps(list(found)), "until": until}
    ).fetchone()
    outdated = json.loads(ids)
    _delete_jobs(connection, outdated, now)
    return len(outdated)


def _purge_keys(connection: sqlite3.Connection, walks: _Walks, until: int, limit: int) -> int:
    """Delete stubs with their keys and versions, then keys and versions without a stub; return the number of keys and versions."""
    ids = [job_id for _, job_id in walks.stubs.unneeded(connection, until, limit)]
    named = {"ids": json.dumps(ids)}
    purged = sum(
        connection.execute(SQL[statement], named).rowcount for statement in ("delete_keys", "delete_versions")
    )
    for statement in ("delete_stubs", "delete_events"):
        connection.execute(SQL[statement], named)
    for walk, statement in ((walks.keys, "purge_keys"), (walks.versions, "purge_versions")):
        rows = walk.unneeded(connection, until, limit - purged)
        purged += connection.execute(SQL[statement], {"rows": json.dumps(rows)}).rowcount
    return purged
