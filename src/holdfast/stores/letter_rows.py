"""Converts rows of dead letters to values and archive records, and back, for every store."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.core.dead_letters.letter import Cause, Group, Letter, LetterState, LetterStep, Step, by_hand
from holdfast.core.dead_letters.ticket import of_letter
from holdfast.core.failures.failure import Failure
from holdfast.stores.rows import Row

Columns = Mapping[str, Any]


def _named(words: str) -> tuple[str, ...]:
    return tuple(words.split())


LETTER = ("error_class", "fingerprint", *(field.name for field in fields(Letter)))
STEP = _named("at state actor reason meta")
JOB = _named(
    "id name queue owner status priority attempt generation lease_token losses stages created_at queued_at finished_at "
    "started_at last_attempt last_attempt_at deadline_at timed_out_token leased_by subject version trace failure stage "
    "timed_out_at late_at announces runs announced_again"
)
RESULTS = _named("result late_result")
STAGE = _named(
    "name call status attempt generation lease_token fingerprint brief_fingerprint number stored_at result failure "
    "provider"
)
EVENT = _named("at kind meta")
SIGNAL = _named("number name data sent_at")
KEY = _named("owner name key fingerprint created_at")
VERSION = _named("owner name subject version fingerprint created_at")
"""The columns of each table in a record; those of a letter are its fields, and two of its failure."""

KEY_LOST = '{"reason":"restored without its key, which is another job\'s by now"}'
"""Recorded in the history of a restored job whose key or version was submitted again while it was archived."""


def letter_from(row: Row) -> Letter:
    """Read a letter from the columns of `LETTER`, its instants as instants.

    The column decides its group: a worker of an earlier version stored no fingerprint in the failure.
    """
    values = {field.name: row[field.name] for field in fields(Letter)}
    values["state"] = LetterState(values["state"])
    values["cause"] = None if values["cause"] is None else Cause(values["cause"])
    values["failure"] = replace(_failure(row["failure"]), fingerprint=row["fingerprint"])
    for name in ("escalated", "repeated", "corrected"):
        values[name] = bool(values[name])
    return Letter(**values)


def step_from(row: Row) -> LetterStep:
    """Read a step from the columns of `STEP`, its instant as one."""
    return LetterStep(
        row["at"], LetterState(row["state"]), row["actor"], row["reason"], json.loads(row["meta"])
    )


def group_from(row: Row) -> Group:
    """Read a group: *names* is a list, and *failure* that of the latest letter."""
    failure = _failure(row["failure"])
    return Group(
        fingerprint=row["fingerprint"],
        error_class=failure.error_class.value,
        place=str(failure.context.get("place", "")),
        names=tuple(sorted(row["names"])),
        letters=row["letters"],
        open=row["open"],
        first_seen=row["first_seen"],
        last_seen=row["last_seen"],
    )


def facts_from(row: Row) -> str:
    """Return, as JSON, the facts of a letter's ticket: it may be notified after the letter is gone."""
    letter = letter_from(row)
    ticket = of_letter("", letter.last_failure_at, letter)
    return json.dumps({**ticket.facts, "title": ticket.title, "level": ticket.level.value})


def _failure(text: str) -> Failure:
    return Failure.from_dict(json.loads(text))


def sources(step: Step) -> list[str]:
    """Return the states from which a person can take *step*."""
    return [state.value for state in LetterState if step.to in by_hand(state)]


def step_rows(steps: Sequence[Step]) -> list[tuple[str, str, str, str]]:
    """Return the rows for the history of a letter, in order: state, actor, reason, meta."""
    return [(step.to.value, step.actor, step.reason, json.dumps(step.recorded())) for step in steps]


class LetterUpdate(NamedTuple):
    """What *steps* together write to a letter; a column that is `None` does not change, except the plan."""

    state: str
    cause: str | None
    evidence: str | None
    safe: str | None
    notes: str | None
    plan: str | None


def letter_update(steps: Sequence[Step]) -> LetterUpdate:
    """Combine what *steps* write to a letter: the last value counts, and only the last step keeps it in a plan."""
    return LetterUpdate(
        state=steps[-1].to.value,
        cause=_last(step.cause for step in steps),
        evidence=_last(step.evidence for step in steps),
        safe=_last(step.safe for step in steps),
        notes=_last(step.notes for step in steps),
        plan=steps[-1].plan,
    )


def _last(values: Iterable[str | None]) -> str | None:
    given = [str(value) for value in values if value is not None]
    return given[-1] if given else None


class LetterRows(NamedTuple):
    """All rows of one letter and, if its job is still failed, of the job; instants are `datetime`."""

    letter: Columns
    steps: Sequence[Columns]
    original_args: str | None = None
    job: Columns | None = None
    """With the columns of `JOB` and `RESULTS`."""
    args: str | None = None
    stages: Sequence[Columns] = ()
    events: Sequence[Columns] = ()
    signals: Sequence[Columns] = ()
    keys: Sequence[Columns] = ()
    versions: Sequence[Columns] = ()


def record_from(rows: LetterRows) -> dict[str, Any]:
    """Return the rows as JSON values that fit every store; data of users is under `private`."""
    letter = _plain(rows.letter, LETTER)
    for name in ("escalated", "repeated", "corrected"):
        letter[name] = bool(letter[name])
    record: dict[str, Any] = {"letter": letter, "steps": [_plain(row, STEP) for row in rows.steps]}
    record["private"] = {"original_args": rows.original_args}
    if rows.job is not None:
        record["job"] = _plain(rows.job, JOB)
        record["events"] = [_plain(row, EVENT) for row in rows.events]
        record["private"] |= {
            "args": rows.args,
            **_plain(rows.job, RESULTS),
            "stages": [_plain(row, STAGE) for row in rows.stages],
            "signals": [_plain(row, SIGNAL) for row in rows.signals],
            "keys": [_plain(row, KEY) for row in rows.keys],
            "versions": [_plain(row, VERSION) for row in rows.versions],
        }
    return record


def rows_from_record(record: Mapping[str, Any]) -> LetterRows:
    """Read a record for its restore: the letter is in no plan any more, so it has to be validated again.

    Its version is raised: a caller may still be about to delete the letter as it was before.
    """
    private = record["private"]
    job = record.get("job")
    return LetterRows(
        letter=_restored(_read(record["letter"], LETTER)),
        steps=[_read(row, STEP) for row in record["steps"]],
        original_args=private.get("original_args"),
        job=None if job is None else {**_read(job, JOB), **_read(private, RESULTS)},
        args=private.get("args"),
        stages=[_read(row, STAGE) for row in private.get("stages", ())],
        events=[_read(row, EVENT) for row in record.get("events", ())],
        signals=[_read(row, SIGNAL) for row in private.get("signals", ())],
        keys=[_read(row, KEY) for row in private.get("keys", ())],
        versions=[_read(row, VERSION) for row in private.get("versions", ())],
    )


def _restored(letter: Columns) -> Columns:
    was_ready = letter["state"] == LetterState.VALIDATED
    return {
        **letter,
        "version": letter["version"] + 1,
        "plan": None,
        "state": LetterState.REMEDIATED.value if was_ready else letter["state"],
    }


def is_instant(column: str) -> bool:
    """Whether the column holds an instant, by its name.

    >>> [name for name in ("at", "attempt", "stored_at") if is_instant(name)]
    ['at', 'stored_at']
    """
    return column == "at" or column.endswith("_at")


def first_id_at(at: datetime) -> str:
    """Return the smallest id of a job that was created at that time; ids contain their time.

    >>> first_id_at(datetime.fromisoformat("2026-05-01T00:00:00+00:00"))
    '019de0d5-c800-7000-8000-000000000000'
    """
    millis = max(0, int(at.timestamp() * 1000))
    return f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7000-8000-000000000000"


def _plain(row: Row | Columns, names: Sequence[str]) -> dict[str, Any]:
    return {name: _iso(row[name]) if is_instant(name) else row[name] for name in names}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _read(values: Columns, names: Sequence[str]) -> dict[str, Any]:
    """Read the columns that this version knows; those that a later version added are ignored."""
    return {name: _instant(values.get(name)) if is_instant(name) else values.get(name) for name in names}


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
