"""Secrets that go into a job come out nowhere: not in letters, logs, events, tickets, metrics, pages or the archive."""

import asyncio
import gzip
import json
import os
import re
import sqlite3
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import asyncpg
import pytest
from pydantic import AfterValidator
from typer.testing import CliRunner

from holdfast import Holdfast, JobFailed, JobFunction, Permanent, Redactor, Retention, Retryable
from holdfast.cli import app
from holdfast.core.failures.message import LINE_LIMIT, STACK_LIMIT
from holdfast.operations import Ticket
from holdfast.telemetry.metric_registry import MetricRegistry
from tests.contract.conftest import Database, Logger, SqliteFile
from tests.contract.letters import ALL, all_failed, answered, failed, notify_tickets, opened, remediated
from tests.contract.steps import TIMEOUT
from tests.unit.secrets_corpus import CORPUS, Secret

FIRST = int(os.environ.get("HOLDFAST_SIM_FIRST", "1"))
"""Decides which half of the errors is on which store, by the same number as the simulated worlds of a run."""

MANY = Retention(letters_a_day=None)

SHOWN = {
    "dead_letters": "*",
    "letter_steps": "*",
    "tickets": "*",
    "alarms": "*",
    "plans": "*",
    "job_events": "*",
    "provider_events": "*",
    "finished": "failure",
    "stages": "failure",
}
"""Tables, and of some only the column, that describe jobs; the others hold the data of the application."""

HELD = {"payloads": "args"}


def with_cause(secret: Secret) -> Exception:
    error = RuntimeError("could not go on")
    error.__cause__ = ValueError(secret.text)
    return error


def with_note(secret: Secret) -> Exception:
    error = RuntimeError("could not go on")
    error.add_note(f"it was said: {secret.text}")
    return error


def with_request_id(secret: Secret) -> Exception:
    error = answered(503, secret.text, x_request_id=quote(secret.text))
    error.request_id = secret.text  # type: ignore[attr-defined]  # as the clients of some services have it
    return error


def cut_in_its_line(secret: Secret) -> Exception:
    """Say it so that the end of the line would fall into the secret."""
    before, _, _ = secret.text.partition(secret.value)
    room = LINE_LIMIT - len("RuntimeError: ") - len(before) - len(secret.value) // 2
    return RuntimeError(" ".join(["so"] * (room // 3)) + f" {secret.text}")


def cut_in_its_stack(secret: Secret) -> Exception:
    """Say it so that the beginning of what is kept of the stack would fall into the secret."""
    _, _, after = secret.text.partition(secret.value)
    room = STACK_LIMIT - len(secret.value) // 2 - len(after)
    return RuntimeError(f"{secret.text} " + "so " * (room // 3))


ERRORS: dict[str, Callable[[Secret], Exception]] = {
    "message": lambda secret: RuntimeError(secret.text),
    "said by the handler": lambda secret: Retryable(secret.text),
    "said for good": lambda secret: Permanent(secret.text),
    "cause": with_cause,
    "note": with_note,
    "group": lambda secret: ExceptionGroup("two", [ValueError(secret.text), RuntimeError(secret.text)]),
    "address": lambda secret: answered(500, f"POST https://x.test/v1?next={quote(secret.text)} failed"),
    "nested JSON": lambda secret: RuntimeError(json.dumps({"error": json.dumps({"message": secret.text})})),
    "dictionary": lambda secret: RuntimeError({"detail": secret.text}),
    "bytes": lambda secret: RuntimeError(secret.text.encode()),
    "request id": with_request_id,
    "cut line": cut_in_its_line,
    "cut stack": cut_in_its_stack,
}


@dataclass
class World:
    """Jobs that have failed, each with a secret, and all that is shown of them."""

    hold: Holdfast
    database: Database
    logger: Logger
    archive: Path
    tickets: list[Ticket] = field(default_factory=list)
    jobs: dict[str, str] = field(default_factory=dict)
    """The kind of error in which each of them said its secret."""
    raised: list[str] = field(default_factory=list)


def declare(hold: Holdfast) -> JobFunction[[int, str, str], None]:
    """Declare a job that fails in a stage, with an error that was made of its arguments."""
    llm = hold.provider("llm")

    @hold.stage("ask", provider=llm)
    async def ask(number: int, kind: str, text: str) -> None:
        raise ERRORS[kind](CORPUS[number])

    @hold.job("leaky")
    async def leaky(number: int, kind: str, text: str) -> None:
        if number % 2:
            await ask(number, kind, text)
        raise ERRORS[kind](CORPUS[number])

    return leaky


def errors_on(database: Database) -> Iterator[tuple[int, str]]:
    """Yield the secrets' numbers and the kinds of error: what one store is not given, the other is.

    Texts are redacted before they reach a store, so that no pair has to be on both. On each store there is every
    secret, and every kind, in a stage and outside.
    """
    for number in range(len(CORPUS)):
        for place, kind in enumerate(ERRORS):
            if (FIRST + number // 2 + place) % 2 == isinstance(database, SqliteFile):
                yield number, kind


@pytest.fixture
async def world(database: Database, logger: Logger, tmp_path: Path) -> AsyncIterator[World]:
    """Every secret in every kind of error that can say it: half of the kinds on this store, and half on the other."""
    archive = tmp_path / "archive"
    async with opened(database, logger, archive=str(archive), retention=MANY) as hold:
        made = World(hold, database, logger, archive)
        hold.on_ticket(made.tickets.append)
        leaky = declare(hold)
        calls = [(number, kind, CORPUS[number].text) for number, kind in errors_on(database)]
        await hold.providers.observe("llm", actor="ann")  # it would be left alone after a few failures
        async with hold.worker(poll=0.05):
            handles = await leaky.submit_many(calls)
            for handle, (_, kind, _) in zip(handles, calls, strict=True):
                made.jobs[handle.id] = kind
                with pytest.raises(JobFailed) as error:
                    await handle.result(timeout=TIMEOUT)
                made.raised += traceback.format_exception(error.value)
        while len(made.tickets) < len(handles):
            await notify_tickets(hold)
        yield made


async def rows(database: Database, tables: dict[str, str]) -> list[str]:
    """Read tables as an operator does who looks at the database itself; each row is a text."""
    if isinstance(database, SqliteFile):
        with closing(sqlite3.connect(database.path)) as file:
            file.row_factory = sqlite3.Row
            return [
                as_text(dict(row))
                for table, columns in tables.items()
                for row in file.execute(f"SELECT {columns} FROM holdfast_{table}")
            ]
    connection = await asyncpg.connect(database.url)
    try:
        return [
            as_text(dict(row))
            for table, columns in tables.items()
            for row in await connection.fetch(f"SELECT {columns} FROM holdfast.{table}")
        ]
    finally:
        await connection.close()


def as_text(row: dict[str, Any]) -> str:
    """Write a row as a text, without its number and with whole instants: both can have the digits of a short secret."""
    values = (value for column, value in row.items() if column != "seq")
    return str(tuple(str(value) if isinstance(value, datetime) else value for value in values))


def spellings(value: str) -> set[str]:
    """Give a value as it would look where a text is quoted, once or twice over."""
    once = {json.dumps(value)[1:-1], repr(value)[1:-1], quote(value), str(value.encode())[2:-1]}
    twice = {repr(one)[1:-1] for one in once} | {json.dumps(one)[1:-1] for one in once}
    return {value, *once, *twice}


LOOKED_FOR = {secret.name: spellings(secret.value) for secret in CORPUS}

IDS = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
MEASURED = re.compile(r"(?<=[T ]\d\d:\d\d:\d\d\.)\d{1,6}|(?<=datetime\.datetime\()[\d, ]+|(?<=_ms\": )\d+")
"""Fractions of a second and durations may have any digits, those of a secret, too."""
FILLER = re.compile(r"(?:so ){10,}")
"""What fills long texts up to their limit: most of what there is to search."""
SHORT = 7
"""What is shorter than this is looked for as a whole word: ids and instants have any few digits in them."""


def leaks(texts: Iterable[str]) -> dict[str, str]:
    """Return which secrets can be read in *texts*, each with the place where it was found first."""
    whole = MEASURED.sub("#", IDS.sub("#", FILLER.sub("so ", "\n".join(texts))))
    places = {name: _place(whole, values) for name, values in LOOKED_FOR.items()}
    return {name: whole[max(0, at - 60) : at + 60] for name, at in places.items() if at >= 0}


def _place(whole: str, values: set[str]) -> int:
    return max(_word(whole, value) if len(value) < SHORT else whole.find(value) for value in values)


def _word(whole: str, value: str) -> int:
    found = re.search(rf"(?<![0-9A-Za-z]){re.escape(value)}(?![0-9A-Za-z])", whole)
    return -1 if found is None else found.start()


async def printed(database: Database, *command: str) -> str:
    """Run a command as an operator would, and give what it printed."""
    runner = CliRunner()
    done = await asyncio.to_thread(runner.invoke, app, [*command, "--url", database.url])
    assert done.exit_code == 0, done.output
    return done.output


async def on_the_command_line(world: World) -> list[str]:
    """Print all lists, and the jobs of some secrets, said in one kind of error after the other."""
    output = [
        await printed(world.database, "dead", command, "--limit", "100000", *how)
        for command in ("list", "groups")
        for how in ([], ["--json"])
    ]
    assert all(job_id in output[1] for job_id in world.jobs)
    some = list(world.jobs)[:: 3 * len(ERRORS) + 2]
    assert {world.jobs[job_id] for job_id in some} == set(ERRORS)
    shown = [(what, "show", job_id) for job_id in some for what in ("dead", "jobs")]
    return output + [await printed(world.database, *command) for command in shown]


async def in_the_archive(world: World) -> list[str]:
    """Archive all letters, and read what is there as a reader without the key."""
    assert await world.hold.dead_letters.archive(older_than="1us") == len(world.jobs)
    packed = [gzip.decompress(file.read_bytes()).decode() for file in world.archive.glob("*.gz")]
    assert sum(text.count("\n") for text in packed) == len(world.jobs)
    return packed + [file.read_text() for file in world.archive.glob("*.json")]


@pytest.mark.clause("DLQ-2")
async def test_no_secret_can_be_read_anywhere_but_in_the_payload(world: World) -> None:
    hold, metrics = world.hold, world.hold.runtime.metrics
    assert isinstance(metrics, MetricRegistry)
    dossiers = [await hold.dead_letters.show(job_id) for job_id in world.jobs]
    shown = {
        "tables": await rows(world.database, SHOWN),
        "letters": [f"{found} {found.sanitized_context}" for found in dossiers],
        "errors": world.raised,
        "tickets": [json.dumps(ticket.to_dict()) for ticket in world.tickets],
        "metrics": [str(key) for key in (*metrics.counts(), *metrics.histograms())],
        "commands": await on_the_command_line(world),
    }
    payloads = await rows(world.database, HELD)
    shown["archive"] = await in_the_archive(world)
    shown["log"] = world.logger.stream.getvalue().splitlines()

    assert {place: found for place, texts in shown.items() if (found := leaks(texts))} == {}
    assert len(shown["tables"]) > 4 * len(world.jobs), "each has a letter, a step, a ticket and events"
    assert all(shown.values())
    assert set(leaks(payloads)) == set(LOOKED_FOR), (
        "a reader who looks where they are finds every one of them"
    )


@pytest.mark.clause("DLQ-3")
async def test_what_is_encrypted_in_the_archive_is_not_lost(
    database: Database, logger: Logger, tmp_path: Path
) -> None:
    async with opened(database, logger, archive=str(tmp_path / "archive"), retention=MANY) as hold:
        leaky = declare(hold)
        job_id = await failed(hold, leaky, 0, "message", CORPUS[0].text)
        assert await hold.dead_letters.archive(older_than="1us") == 1
        await hold.dead_letters.restore(job_id)

        assert list(leaks([(await hold.read(job_id)).args])) == [CORPUS[0].name]


@pytest.mark.clause("DLQ-2")
async def test_what_a_person_writes_down_holds_no_secret_either(database: Database, logger: Logger) -> None:
    """Operators paste what a service has answered."""
    async with opened(database, logger) as hold:
        leaky = declare(hold)
        job_id = await failed(hold, leaky, 0, "message", "")
        for secret in CORPUS:
            await hold.dead_letters.triage(job_id, "data", actor="ann", reason=secret.text)
            await hold.dead_letters.remediate(
                job_id, f"they said {secret.text}", actor="ann", reason=secret.text
            )
            plan = await hold.dead_letters.plan(job_id, safe=secret.text, actor="ann")
            await hold.dead_letters.stop(str(plan.token), actor="ann", reason=secret.text)
        await hold.dead_letters.discard(job_id, CORPUS[0].text, actor="ann")

    stored = await rows(database, SHOWN)
    assert len(stored) > 4 * len(CORPUS)
    assert leaks([*stored, logger.stream.getvalue()]) == {}


@pytest.mark.clause("DLQ-2")
async def test_why_a_job_cannot_be_replayed_is_said_without_its_arguments(
    database: Database, logger: Logger
) -> None:
    """A type of the application refuses a value, and quotes it."""

    def refuse(text: str) -> str:
        raise ValueError(f"no such thing: {text}")

    async with opened(database, logger) as hold:

        @hold.job("essay")
        async def essay(text: str) -> None:
            raise Permanent("no")

        async with hold.worker(poll=0.05):
            await all_failed(hold, await essay.submit_many((secret.text,) for secret in CORPUS))
    async with opened(database, logger) as later:

        @later.job("essay")
        async def stricter(text: Annotated[str, AfterValidator(refuse)]) -> None: ...

        await remediated(later)
        plan = await later.dead_letters.plan(ALL, safe="nothing was sent", actor="ann")

    assert len(plan.refused) == len(CORPUS)
    assert all("no such thing: " in why for why in plan.refused.values())
    assert leaks(plan.refused.values()) == {}


async def test_a_redactor_given_to_two_stores_keeps_the_tags_of_each(tmp_path: Path) -> None:
    given = Redactor()
    first, second = [Holdfast(f"sqlite:///{tmp_path}/{name}.db", redactor=given) for name in ("a", "b")]
    async with first:
        before = first.runtime.redactor("ada@example.org")
        async with second:
            other = second.runtime.redactor("ada@example.org")

        assert first.runtime.redactor("ada@example.org") == before
    assert other != before
