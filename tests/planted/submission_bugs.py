"""Mistakes around submissions, keys, versions and effects."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.app import job_function
from holdfast.app.current import Current
from holdfast.core.errors import VersionRefused
from holdfast.core.jobs.idempotency import EarlierJob, existing_receipt
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.stores.sqlite import store, submitting
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.submitting import submit
from tests.planted.planting import Bug, Sql, Swap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

_FLUSH = 1.0
_WRITING: set[asyncio.Task[Any]] = set()

_KEY_AGAIN = Sql("reserve_key", "INSERT INTO", "INSERT OR REPLACE INTO")
_VERSION_AGAIN = Sql("add_version", "INSERT INTO", "INSERT OR REPLACE INTO")


async def _answer_then_store(self: Any, batch: Sequence[Submission], *, again: bool = False) -> list[Receipt]:
    async def flush() -> None:
        await asyncio.sleep(_FLUSH)
        await self._writer.write(lambda connection, now: submit(connection, batch, now=now))

    task = asyncio.create_task(flush())
    _WRITING.add(task)
    task.add_done_callback(_WRITING.discard)
    return [Receipt(item.id) for item in batch]


def _submit_as_if_new(connection: Any, batch: Sequence[Submission], *, now: Any, again: bool = False) -> Any:
    return submit(connection, batch, now=now)


def _admit_equal(submission: Submission, latest: EarlierJob | None) -> Receipt | None:
    if latest is not None and submission.version < latest.version:  # type: ignore[operator]
        raise VersionRefused("an older version")
    return None


def _admit_lower(submission: Submission, latest: EarlierJob | None) -> Receipt | None:
    if latest is not None and submission.version == latest.version:
        return existing_receipt(submission, latest)
    return None


def _admit_without_a_request(submission: Submission, latest: EarlierJob | None) -> Receipt | None:
    if latest is not None and submission.version == latest.version:
        return existing_receipt(submission, latest)
    return _admit_equal(submission, latest)


def _current_with_attempt(  # noqa: PLR0917 - as the class is called
    job_id: str,
    attempt: int,
    generation: int,
    key: str,
    left: timedelta | None,
    provider: str | None = None,
) -> Current:
    return Current(job_id, attempt, generation, f"{key}:{attempt}", left, provider)


BUGS = (
    Bug(
        "answer-before-commit",
        "Collect submissions for a second: one commit instead of a thousand.",
        ("JOB-1",),
        (Swap(SqliteStore, "submit", _answer_then_store),),
    ),
    Bug(
        "sent-again-as-new",
        "A submission is a submission, also if its answer was lost the first time.",
        (),
        (Swap(store, "submit", _submit_as_if_new),),
    ),
    Bug(
        "key-not-looked-up",
        "Two submissions with one key will hardly come.",
        ("IDM-1",),
        (Swap(submitting, "_by_key", lambda connection, item: None), _KEY_AGAIN),
    ),
    Bug(
        "key-of-everybody",
        "A key is a key, whichever owner uses it.",
        ("IDM-1",),
        (Sql("job_by_key", "owner = :owner AND ", ""),),
    ),
    Bug(
        "key-of-every-job",
        "A key is a key, whatever it is for.",
        ("IDM-1",),
        (Sql("job_by_key", "name = :name AND ", ""),),
    ),
    Bug(
        "key-forgotten-at-the-end",
        "When the job is done, its key is free again.",
        ("IDM-2",),
        (
            Sql("job_by_key", "key = :key", "key = :key AND job_id IN (SELECT id FROM holdfast_jobs)"),
            _KEY_AGAIN,
        ),
    ),
    Bug(
        "key-known-at-the-end",
        "Look whether there is a result for the key, else do the work.",
        ("IDM-4", "IDM-1"),
        (
            Sql("job_by_key", "key = :key", "key = :key AND job_id IN (SELECT id FROM holdfast_finished)"),
            _KEY_AGAIN,
        ),
    ),
    Bug(
        "equal-version-runs-again",
        "Refuse what is older, run the rest.",
        ("IDM-3", "IDM-2"),
        (Swap(submitting, "admit_version", _admit_equal), _VERSION_AGAIN),
    ),
    Bug(
        "lower-version-runs",
        "Every version that is not the latest is a new one.",
        ("IDM-3",),
        (Swap(submitting, "admit_version", _admit_lower), _VERSION_AGAIN),
    ),
    Bug(
        "rerun-unasked",
        "A higher version says clearly enough what is asked for.",
        ("IDM-3",),
        (Swap(submitting, "admit_version", _admit_without_a_request),),
    ),
    Bug(
        "effect-key-per-attempt",
        "Every request gets a key of its own.",
        (),
        (Swap(import_module("holdfast.app.current"), "Current", _current_with_attempt),),
    ),
    Bug(
        "children-anew",
        "What a job submits is submitted, each time it runs.",
        (),
        (Swap(job_function, "next_key", lambda *_: None),),
    ),
)
