"""Storing submissions in PostgreSQL, on our own connection or on the caller's."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import KeyReused, VersionRefused
from holdfast.core.idempotency import Earlier, admit_version, stand_in
from holdfast.core.jobs import Receipt, Submission
from holdfast.ports.store import Refusal
from holdfast.stores.rows import columns
from holdfast.stores.sqlfiles import Statements

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

CHUNK = 5_000

_COLUMNS = [
    attrgetter(name)
    for name in (
        [
            "id",
            "name",
            "queue",
            "owner",
            "args",
            "priority",
            "delay",
            "run_at",
            "subject",
            "version",
            "trace",
        ]  # as submit.sql reads them
    )
]


async def insert(
    connection: "Connection", sql: Statements, batch: Sequence[Submission], hints: Sequence[str]
) -> None:
    """Write jobs that are known to be new, and hint at *hints* with the last of them."""
    for start in range(0, len(batch), CHUNK):
        chunk = list(batch[start : start + CHUNK])
        last = start + CHUNK >= len(batch)
        await connection.execute(sql["submit"], *columns(chunk, *_COLUMNS), list(hints) if last else [])


async def submit_unique(
    connection: "Connection", sql: Statements, batch: Sequence[Submission], hints: Sequence[str]
) -> list[Receipt | Refusal]:
    """Write those of *batch* that no earlier job stands for. Runs inside a transaction."""
    answers: dict[str, Receipt | Refusal] = {}
    await _by_key(connection, sql, [item for item in batch if item.key is not None], answers)
    await _by_subject(connection, sql, [item for item in batch if item.subject is not None], answers)
    new = [item for item in batch if item.id not in answers]
    await insert(connection, sql, new, hints)
    return [answers.get(item.id, Receipt(item.id)) for item in batch]


async def _by_key(
    connection: "Connection", sql: Statements, batch: list[Submission], answers: dict[str, Receipt | Refusal]
) -> None:
    """Answer the submissions whose key was taken before, by another call or earlier in this batch."""
    if not batch:
        return
    keys = columns(batch, attrgetter("owner"), attrgetter("name"), attrgetter("key"))
    ids = columns(batch, attrgetter("id"), attrgetter("fingerprint"))
    reserved = {row["job_id"] for row in await connection.fetch(sql["reserve_keys"], *keys, *ids)}
    if len(reserved) == len(batch):
        return
    rows = await connection.fetch(sql["taken_keys"], *keys)
    taken = {
        (row["owner"], row["name"], row["key"]): Earlier(row["job_id"], row["fingerprint"]) for row in rows
    }
    for item in batch:
        if item.id not in reserved:
            answers[item.id] = _answer(item, taken[item.owner, item.name, item.key])


async def _by_subject(
    connection: "Connection", sql: Statements, batch: list[Submission], answers: dict[str, Receipt | Refusal]
) -> None:
    """Answer the submissions whose subject has this version or a later one already."""
    for item in sorted(
        batch, key=lambda item: (item.owner, item.name, item.subject or "", item.version or 0)
    ):
        answer = None if item.id in answers else await _by_version(connection, sql, item)
        if answer is not None:
            answers[item.id] = answer
            await connection.execute(sql["release_key"], item.owner, item.name, item.key or "", item.id)


def _answer(item: Submission, earlier: Earlier) -> Receipt | Refusal:
    if earlier.id == item.id:
        return Receipt(item.id)  # sent again after a lost answer: the first one had arrived
    try:
        return stand_in(item, earlier)
    except KeyReused as refusal:
        return Refusal(refusal)


async def _by_version(
    connection: "Connection", sql: Statements, item: Submission
) -> Receipt | Refusal | None:
    """Answer the submission if its version is not a new one, else take the version for it."""
    scope: list[Any] = [item.owner, item.name, item.subject]
    await connection.execute(sql["lock_subject"], *scope)
    row = await connection.fetchrow(sql["latest_version"], *scope)
    latest = Earlier(row["job_id"], row["fingerprint"], row["version"]) if row else None
    if latest is not None and latest.id == item.id:
        return Receipt(item.id)
    try:
        receipt = admit_version(item, latest)
    except (KeyReused, VersionRefused) as refusal:
        return Refusal(refusal)
    if receipt is None:
        await connection.execute(sql["add_version"], *scope, item.version, item.id, item.fingerprint)
    return receipt
