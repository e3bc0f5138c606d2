"""Storing submissions in PostgreSQL, on our own connection or on the caller's."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import KeyReused, VersionRefused
from holdfast.core.idempotency import REUSED, Earlier, admit_version, misused, stand_in
from holdfast.core.jobs import Receipt, Submission
from holdfast.ports.store import Refusal
from holdfast.stores.rows import columns, shared
from holdfast.stores.sqlfiles import Statements

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

CHUNK = 5_000
"""Jobs in one statement, so that a very long list does not become one very long text."""

_OWN = [attrgetter(name) for name in ("id", "args")]
_ALIKE = [attrgetter(name) for name in ("name", "queue", "owner", "priority")]
_RARE = [attrgetter(name) for name in ("delay", "run_at", "subject", "version", "trace")]
_ALL = [*_OWN, *_ALIKE, *_RARE]  # as submit.sql and submit_one.sql read them


async def insert(
    connection: "Connection", sql: Statements, batch: Sequence[Submission], hints: Sequence[str]
) -> None:
    """Write jobs that are known to be new, and hint at *hints*."""
    if not batch:
        return
    if len(batch) == 1:
        await connection.execute(sql["submit_one"], *[get(batch[0]) for get in _ALL], bool(hints))
        return
    for start in range(0, len(batch), CHUNK):
        chunk = list(batch[start : start + CHUNK])
        lists = [*columns(chunk, *_OWN), *shared(chunk, *_ALIKE), *columns(chunk, *_RARE)]
        await connection.execute(sql["submit"], *lists, list(hints))


async def submit_unique(
    connection: "Connection", sql: Statements, batch: Sequence[Submission], hints: Sequence[str]
) -> list[Receipt | Refusal]:
    """Write those of *batch* that no earlier job stands for. Runs inside a transaction."""
    answers = await _submit_new(connection, sql, batch, hints)
    wronged = misused(answers)
    if wronged:
        await connection.execute(sql["warn"], wronged, REUSED)
    return answers


async def _submit_new(
    connection: "Connection", sql: Statements, batch: Sequence[Submission], hints: Sequence[str]
) -> list[Receipt | Refusal]:
    answers: dict[str, Receipt | Refusal] = {}
    await _by_key(connection, sql, [item for item in batch if item.key is not None], answers)
    await _by_subject(connection, sql, [item for item in batch if item.subject is not None], answers)
    new = [item for item in batch if item.id not in answers]
    await insert(connection, sql, new, hints)
    astray = _astray(batch, answers)
    if astray:
        again = await _submit_new(connection, sql, astray, hints)
        answers |= zip((item.id for item in astray), again, strict=True)
    return [answers.get(item.id, Receipt(item.id)) for item in batch]


def _astray(batch: Sequence[Submission], answers: dict[str, Receipt | Refusal]) -> list[Submission]:
    """Find those who were answered with a job of this batch that was then turned away for its version."""
    absent = {
        item.id for item in batch if _stands_for(answers.get(item.id)) != item.id and item.id in answers
    }
    return [item for item in batch if _stands_for(answers.get(item.id)) in absent]


def _stands_for(answer: Receipt | Refusal | None) -> str | None:
    return answer.id if isinstance(answer, Receipt) else None


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
