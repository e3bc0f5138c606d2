"""Stores submissions in PostgreSQL, on the store's own connection or on the caller's."""

from collections.abc import Sequence
from operator import attrgetter

import asyncpg

from holdfast.core.errors import KeyReused, StoreUnavailable, VersionRefused
from holdfast.core.jobs.idempotency import (
    REUSED,
    EarlierJob,
    admit_version,
    existing_receipt,
    jobs_with_reused_keys,
)
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.ports.store import SubmissionRefusal
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.notify import Sender
from holdfast.stores.postgres.within import PostgresRunner
from holdfast.stores.queries import Queries
from holdfast.stores.rows import columns, shared

CHUNK = 5_000
"""The maximum number of jobs in one statement."""

_OWN = [attrgetter(name) for name in ("id", "args")]
_ALIKE = [attrgetter(name) for name in ("name", "queue", "owner", "priority", "announces")]
_RARE = [
    attrgetter(name) for name in ("delay", "run_at", "subject", "version", "trace", "deadline", "deadline_at")
]
_KEY = [attrgetter(name) for name in ("owner", "name", "key")]
_MADE = [attrgetter(name) for name in ("id", "fingerprint")]
_ALL = [*_OWN, *_ALIKE, *_RARE]  # as submit.sql and submit_one.sql read them


class PostgresSubmissions:
    """Stores submissions: those without a key in one statement, the others in one transaction."""

    def __init__(self, connections: Connections, sql: Queries, sender: Sender) -> None:
        self._connections = connections
        self._sql = sql
        self._sender = sender

    async def submit(self, batch: Sequence[Submission], *, again: bool) -> list[Receipt | SubmissionRefusal]:
        """Store *batch*; *again* says that it may have been stored already, and the answer was lost."""
        new = await self._missing(batch) if again else batch
        plain = [item for item in new if not item.unique]
        unique = [item for item in new if item.unique]
        if plain:
            await self._submit_plain(plain)
        if not unique:
            return [Receipt(item.id) for item in batch]
        answers = dict(zip((item.id for item in unique), await self._submit_unique(unique), strict=True))
        return [answers.get(item.id, Receipt(item.id)) for item in batch]

    async def _missing(self, batch: Sequence[Submission]) -> list[Submission]:
        rows = await self._connections.fetch(self._sql["known_jobs"], [item.id for item in batch])
        known = {row["id"] for row in rows}
        return [item for item in batch if item.id not in known]

    async def _submit_plain(self, batch: Sequence[Submission]) -> None:
        try:
            async with self._connections.acquire() as connection:
                await insert(
                    connection, self._sql, batch, self._due(batch), timeout=self._answer_timeout(batch)
                )
        except asyncpg.UniqueViolationError as error:
            # Ids are new, so this is an earlier attempt whose answer was lost and which has committed only now.
            raise StoreUnavailable("the submission was still on its way; send it again") from error

    async def _submit_unique(self, batch: Sequence[Submission]) -> list[Receipt | SubmissionRefusal]:
        async with self._connections.acquire() as connection, connection.transaction():
            return await submit_unique(
                connection, self._sql, batch, self._due(batch), timeout=self._answer_timeout(batch)
            )

    def _answer_timeout(self, batch: Sequence[Submission]) -> float:
        return self._connections.answer_timeout(item.args for item in batch)

    def _due(self, batch: Sequence[Submission]) -> list[str]:
        return self._sender.due({item.queue for item in batch})


async def insert(
    connection: PostgresRunner,
    sql: Queries,
    batch: Sequence[Submission],
    hints: Sequence[str],
    *,
    timeout: float | None = None,
) -> None:
    """Write jobs that are known to be new, and notify the queues *hints*; *timeout* overrides the connection's own."""
    if not batch:
        return
    if len(batch) == 1:
        values = [get(batch[0]) for get in _ALL]
        await connection.execute(sql["submit_one"], *values, bool(hints), timeout=timeout)
        return
    for start in range(0, len(batch), CHUNK):
        chunk = list(batch[start : start + CHUNK])
        lists = [*columns(chunk, *_OWN), *shared(chunk, *_ALIKE), *columns(chunk, *_RARE)]
        await connection.execute(sql["submit"], *lists, list(hints), timeout=timeout)


async def submit_unique(
    connection: PostgresRunner,
    sql: Queries,
    batch: Sequence[Submission],
    hints: Sequence[str],
    *,
    timeout: float | None = None,
) -> list[Receipt | SubmissionRefusal]:
    """Write those of *batch* for which there is no earlier job. Runs inside a transaction.

    Keys and subjects are locked first, each kind in sorted order, so that two batches cannot deadlock.
    Then each submission is decided on in turn, as if it had been submitted alone.
    """
    earlier = _EarlierJobs()
    reserved = await _reserve_keys(connection, sql, batch, earlier)
    await _lock_subjects(connection, sql, batch, earlier)
    decisions = [(item, earlier.answer(item)) for item in batch]
    new = [item for item, answer in decisions if answer is None]
    await _hand_over_keys(
        connection, sql, reserved, {_by_key(item): item for item in new if item.key is not None}
    )
    for item in new:
        if item.subject is not None:
            scope = (item.owner, item.name, item.subject)
            await connection.execute(sql["add_version"], *scope, item.version, item.id, item.fingerprint)
    await insert(connection, sql, new, hints, timeout=timeout)
    answers = [answer or Receipt(item.id) for item, answer in decisions]
    wronged = jobs_with_reused_keys(answers)
    if wronged:
        await connection.execute(sql["add_warnings"], wronged, REUSED)
    return answers


Scope = tuple[str, str, str | None]
"""Owner and job name, with a key or a subject."""


class _EarlierJobs:
    """The jobs that have a key or a subject: those of other calls, and those earlier in this batch."""

    def __init__(self) -> None:
        self.keys: dict[Scope, EarlierJob] = {}
        self.versions: dict[Scope, EarlierJob] = {}

    def answer(self, item: Submission) -> Receipt | SubmissionRefusal | None:
        """Return the receipt of the earlier job for *item*; `None` means that *item* is new, and is recorded as such."""
        try:
            receipt = self._by_key(item) or self._by_version(item)
        except (KeyReused, VersionRefused) as refusal:
            return SubmissionRefusal(refusal)
        if receipt is None:
            made = EarlierJob(item.id, item.fingerprint, item.version)
            self.keys[_by_key(item)] = made._replace(version=None)
            self.versions[_by_subject(item)] = made
        return receipt

    def _by_key(self, item: Submission) -> Receipt | None:
        earlier = self.keys.get(_by_key(item)) if item.key is not None else None
        return None if earlier is None else _sent_again(item, earlier) or existing_receipt(item, earlier)

    def _by_version(self, item: Submission) -> Receipt | None:
        latest = self.versions.get(_by_subject(item)) if item.subject is not None else None
        return None if latest is None else _sent_again(item, latest) or admit_version(item, latest)


def _sent_again(item: Submission, earlier: EarlierJob) -> Receipt | None:
    """Recognise a submission that was stored before, but whose answer was lost."""
    return Receipt(item.id) if earlier.id == item.id else None


def _by_key(item: Submission) -> Scope:
    return item.owner, item.name, item.key


def _by_subject(item: Submission) -> Scope:
    return item.owner, item.name, item.subject


async def _reserve_keys(
    connection: PostgresRunner, sql: Queries, batch: Sequence[Submission], earlier: _EarlierJobs
) -> list[Submission]:
    """Reserve the free keys of *batch*, each for its first submission, and read which jobs have the others."""
    pending = list({_by_key(item): item for item in reversed(batch) if item.key is not None}.values())
    reserved: list[Submission] = []
    while pending:
        rows = await connection.fetch(sql["reserve_keys"], *columns(pending, *_KEY, *_MADE))
        taken = {row["job_id"] for row in rows}
        reserved += [item for item in pending if item.id in taken]
        others = [item for item in pending if item.id not in taken]
        if not others:
            break
        for row in await connection.fetch(sql["jobs_by_key"], *columns(others, *_KEY)):
            earlier.keys[row["owner"], row["name"], row["key"]] = EarlierJob(
                row["job_id"], row["fingerprint"]
            )
        # A key that was purged between the two statements is free again.
        pending = [item for item in others if _by_key(item) not in earlier.keys]
    return reserved


async def _hand_over_keys(
    connection: PostgresRunner, sql: Queries, reserved: list[Submission], new: dict[Scope, Submission]
) -> None:
    """Release the keys of submissions that were refused for their version, and reserve them for the next with the key."""
    refused = [item for item in reserved if new.get(_by_key(item)) is not item]
    for item in refused:
        await connection.execute(sql["release_key"], item.owner, item.name, item.key, item.id)
    successors = [new[_by_key(item)] for item in refused if _by_key(item) in new]
    if successors:
        await connection.fetch(sql["reserve_keys"], *columns(successors, *_KEY, *_MADE))


async def _lock_subjects(
    connection: PostgresRunner, sql: Queries, batch: Sequence[Submission], earlier: _EarlierJobs
) -> None:
    """Lock the subjects of *batch* until this transaction ends, and read their latest versions."""
    for scope in sorted(
        {(item.owner, item.name, item.subject) for item in batch if item.subject is not None}
    ):
        await connection.execute(sql["lock_subject"], *scope)
        row = await connection.fetchrow(sql["latest_version"], *scope)
        if row is not None:
            earlier.versions[scope] = EarlierJob(row["job_id"], row["fingerprint"], row["version"])
