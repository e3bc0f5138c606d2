"""Stores submissions in SQLite, inside a transaction of the store or of the caller."""

import json
from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import KeyReused, VersionRefused
from holdfast.core.jobs.idempotency import (
    REUSED,
    EarlierJob,
    admit_version,
    existing_receipt,
    jobs_with_reused_keys,
)
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.ports.store import SubmissionRefusal
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.times import micros, micros_of
from holdfast.stores.sqlite.within import SqliteRunner


def submit(
    connection: SqliteRunner, batch: Sequence[Submission], *, now: int, again: bool = False
) -> list[Receipt | SubmissionRefusal]:
    """Store *batch*: all of it in the open transaction, which the caller ends."""
    known = _known(connection, batch) if again else frozenset()
    answers: dict[str, Receipt | SubmissionRefusal] = {}
    for item in batch:
        if item.unique and item.id not in known:
            answer = _earlier(connection, item, now)
            if answer is not None:
                answers[item.id] = answer
    _insert(connection, [item for item in batch if item.id not in answers and item.id not in known], now)
    wronged = jobs_with_reused_keys(answers.values())
    if wronged:
        connection.execute(SQL["add_warnings"], {"ids": json.dumps(wronged), "meta": REUSED, "now": now})
    return [answers.get(item.id) or Receipt(item.id) for item in batch]


def _known(connection: SqliteRunner, batch: Sequence[Submission]) -> frozenset[str]:
    ids = json.dumps([item.id for item in batch])
    [text] = connection.execute(SQL["known_jobs"], {"ids": ids}).fetchone()
    return frozenset(json.loads(text))


def _insert(connection: SqliteRunner, batch: Sequence[Submission], now: int) -> None:
    if batch:
        values = {"batch": json.dumps([_row(item) for item in batch], ensure_ascii=False), "now": now}
        connection.execute(SQL["submit"], values)
        connection.execute(SQL["submit_payloads"], values)


def _row(item: Submission) -> list[Any]:
    return [
        item.id,
        item.name,
        item.queue,
        item.owner,
        item.args,
        item.priority,
        None if item.delay is None else micros_of(item.delay),
        None if item.run_at is None else micros(item.run_at),
        item.subject,
        item.version,
        item.trace,
        None if item.deadline is None else micros_of(item.deadline),
        None if item.deadline_at is None else micros(item.deadline_at),
        item.announces,
    ]


def _earlier(connection: SqliteRunner, item: Submission, now: int) -> Receipt | SubmissionRefusal | None:
    """Return the receipt of the earlier job for *item*; otherwise reserve its key and version."""
    try:
        receipt = _by_key(connection, item) or _by_version(connection, item)
    except (KeyReused, VersionRefused) as refusal:
        return SubmissionRefusal(refusal)
    if receipt is None:
        values = {**item._asdict(), "now": now}
        if item.key is not None:
            connection.execute(SQL["reserve_key"], _only(values, "owner name key id fingerprint now"))
        if item.subject is not None:
            connection.execute(
                SQL["add_version"], _only(values, "owner name subject version id fingerprint now")
            )
    return receipt


def _by_key(connection: SqliteRunner, item: Submission) -> Receipt | None:
    if item.key is None:
        return None
    row = connection.execute(SQL["job_by_key"], _only(item._asdict(), "owner name key")).fetchone()
    return None if row is None else existing_receipt(item, EarlierJob(row[0], row[1]))


def _by_version(connection: SqliteRunner, item: Submission) -> Receipt | None:
    if item.subject is None:
        return None
    row = connection.execute(SQL["latest_version"], _only(item._asdict(), "owner name subject")).fetchone()
    return admit_version(item, None if row is None else EarlierJob(row[0], row[1], row[2]))


def _only(values: dict[str, Any], names: str) -> dict[str, Any]:
    return {name: values[name] for name in names.split()}
