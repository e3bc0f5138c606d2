"""With a codec, arguments and results cannot be read in the database; without its key, nothing gets lost."""

import asyncio
import base64
import hashlib
import hmac
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel

from holdfast import Backoff, Holdfast, JobFailed, Status
from holdfast.core.dead_letters.letter import Cause, triage
from holdfast.core.jobs.job import Job
from holdfast.core.jobs.transitions import complete
from holdfast.core.strict_json import fingerprint
from holdfast.errors import PayloadEncrypted
from holdfast.ports import Store
from holdfast.stores.encoded_store import EncodedStore
from holdfast.types import JobCall
from tests.builders import a_job
from tests.contract.conftest import Database, DatabaseClock, Logger, SqliteFile
from tests.contract.steps import TIMEOUT, eventually
from tests.contract.stored_letters import a_letter, moved

SECRET = "the-butler-did-it"


class Lock:
    """No encryption, but a text that is not read by chance, and only under the same key again."""

    def __init__(self, key: str, *older: str) -> None:
        self._key = key
        self._keys = {key, *older}

    def encode(self, text: str) -> str:
        return f"{self._key}.{base64.b64encode(text.encode()).decode()}"

    def decode(self, text: str) -> str:
        key, _, rest = text.partition(".")
        if key not in self._keys:
            raise LookupError(key)
        return base64.b64decode(rest).decode()

    def fingerprint(self, digest: str) -> str:
        return hmac.new(b"for comparing", digest.encode(), hashlib.sha256).hexdigest()[:32]


def locked(database: Database, key: str, *older: str, logger: Logger | None = None) -> Holdfast:
    """A Holdfast of a process that has these keys."""
    return Holdfast(
        database.url,
        attempts=2,
        backoff=Backoff.none(),
        codec=Lock(key, *older),
        logger=None if logger is None else logger.writer,
    )


def declare(hold: Holdfast) -> Any:
    @hold.stage()
    async def think(text: str) -> str:
        return f"{text}, I think"

    @hold.job("mystery")
    async def mystery(text: str) -> list[str]:
        thought = await think(text)
        return [thought, await hold.wait_for("hint")]

    return mystery


async def everything(database: Database) -> str:
    """Read all that is in the database, as an attacker with a copy of it would."""
    if isinstance(database, SqliteFile):
        with closing(sqlite3.connect(database.path)) as file:
            names = [name for [name] in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return str([file.execute(f"SELECT * FROM {name}").fetchall() for name in names])
    connection = await asyncpg.connect(database.url)
    try:
        names = await connection.fetch("SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r'")  # fmt: skip
        return str([await connection.fetch(f"SELECT * FROM holdfast.{name}") for [name] in names])
    finally:
        await connection.close()


async def test_nothing_that_is_stored_can_be_read_without_the_codec(store: Store, database: Database) -> None:
    async with locked(database, "k1") as hold:
        mystery = declare(hold)
        job = await mystery.options(key="first").submit(SECRET)
        async with hold.worker(poll=0.05):
            await eventually(lambda: hold.read(job.id), lambda job: job.waiting)
            await hold.signal(job.id, "hint", f"{SECRET}, indeed")
            result = await job.result(timeout=TIMEOUT)

        stored = await everything(database)
        seen = await job.read()

    assert result == [f"{SECRET}, I think", f"{SECRET}, indeed"]
    assert json.loads(seen.args) == {"text": SECRET}
    assert "mystery" in stored
    assert SECRET not in stored
    assert fingerprint(json.dumps({"text": SECRET})) not in stored
    assert (await store.get(job.id)).args.startswith("~k1.")


async def test_a_late_result_is_encoded_too(store: Store, database: Database, clock: DatabaseClock) -> None:
    async with locked(database, "k1") as hold:
        coded = EncodedStore(store, Lock("k1"))

        @hold.job("slow", deadline="1m")
        async def slow() -> str:
            return SECRET

        @slow.when_late_is_accepted
        @hold.job("follow")
        async def follow(job_id: str, result: str) -> str:
            return result

        job = await slow.submit()
        [claim] = await coded.claim("worker", "default", limit=1, lease=timedelta(minutes=9))
        await clock.advance(timedelta(minutes=2))
        await coded.settle("worker", [complete(claim, json.dumps(SECRET))])

        assert (await store.get(job.id)).late_at is not None
        assert SECRET not in await everything(database)
        accepted = await hold.accept_late(job.id, actor="ada")
        assert hold.load_result(accepted) == SECRET
        assert SECRET not in await everything(database)


async def test_keys_find_the_same_job_and_distinguish_other_arguments(
    store: Store, database: Database
) -> None:
    async with locked(database, "k1") as first, locked(database, "k2", "k1") as second:
        one = await declare(first).options(key="same").submit(SECRET)
        again = declare(second).options(key="same")
        same, other = await again.submit(SECRET), await again.submit("other")

    assert (same.id, same.existing, same.payload_differs) == (one.id, True, False)
    assert (other.id, other.payload_differs) == (one.id, True)


async def test_a_worker_without_the_key_puts_the_job_aside_for_one_that_has_it(
    store: Store, database: Database, clock: DatabaseClock, logger: Logger
) -> None:
    async with locked(database, "k2") as newer, locked(database, "k1", logger=logger) as older:
        double(older)
        jobs = await double(newer).submit_many([[21], [22]])

        async with older.worker(poll=0.05) as worker:
            parked = [await eventually(job.read, is_parked) for job in jobs]
        await clock.advance(timedelta(seconds=31))
        await store.promote(limit=10)
        async with newer.worker(poll=0.05):
            results = [await job.result(timeout=TIMEOUT) for job in jobs]

    assert {(job.status, job.attempt) for job in parked} == {(Status.QUEUED, 0)}
    assert [line["name"] for line in logger.lines("job not decodable")] == ["double"]
    assert results == [42, 44]
    reasons = [event.meta["reason"] for event in await store.events(jobs[0].id) if event.kind == "parked"]
    assert reasons == [f"{worker.name} cannot decode it"]


def double(hold: Holdfast) -> Any:
    @hold.job("double")
    async def doubled(n: int) -> int:
        return 2 * n

    return doubled


def is_parked(job: Job) -> bool:
    return job.retry_after is not None


async def test_a_stage_that_cannot_be_decoded_stops_nothing_but_the_attempt(
    store: Store, database: Database
) -> None:
    async with locked(database, "k2", "k1") as newer, locked(database, "k1") as older:
        job = await declare(older).submit(SECRET)
        declare(newer)
        async with newer.worker(poll=0.05):
            await eventually(job.read, lambda job: job.waiting)
        await newer.signal(job.id, "hint", "the gardener")

        async with older.worker(poll=0.05):
            parked = await eventually(job.read, lambda job: is_parked(job) and not job.waiting)

    assert (parked.status, parked.attempt) == (Status.QUEUED, 0)
    assert list(await store.reasons([job.id])) == [job.id]


@pytest.mark.parametrize("keys", [("k9",), ()], ids=["another key", "no codec"])
async def test_a_result_that_cannot_be_decoded_is_refused_with_what_to_do(
    database: Database, store: Store, keys: tuple[str, ...]
) -> None:
    async with locked(database, "k1") as hold:
        job = await double(hold).submit(4)
        async with hold.worker(poll=0.05):
            await job.result(timeout=TIMEOUT)
    async with locked(database, *keys) if keys else Holdfast(database.url) as other:
        double(other)

        with pytest.raises(PayloadEncrypted, match="codec"):
            await other.handle(job.id, "double").result(timeout=TIMEOUT)


async def test_a_job_that_needs_such_a_result_fails_where_a_person_sees_it(
    database: Database, store: Store
) -> None:
    async with locked(database, "k1") as hold:
        child = await double(hold).submit(4)
        async with hold.worker(poll=0.05):
            await child.result(timeout=TIMEOUT)
    async with locked(database, "k2") as other:
        double(other)

        @other.job("reader")
        async def reader(job_id: str) -> int:
            return int(await other.handle(job_id, "double").result())

        job = await reader.submit(child.id)
        async with other.worker(poll=0.05):
            with pytest.raises(JobFailed, match="MISCONFIGURED"):
                await job.result(timeout=TIMEOUT)


async def test_jobs_of_before_the_codec_run_with_it(database: Database, store: Store) -> None:
    async with Holdfast(database.url) as plain, locked(database, "k1") as hold:
        double(hold)
        job = await double(plain).submit(5)

        async with hold.worker(poll=0.05):
            assert await hold.handle(job.id, "double").result(timeout=TIMEOUT) == 10


async def test_a_caller_s_own_transaction_stores_encoded_arguments(database: Database, store: Store) -> None:
    async with locked(database, "k1") as hold:
        mystery = declare(hold)
        if isinstance(database, SqliteFile):
            with closing(sqlite3.connect(database.path, isolation_level=None)) as file:
                file.execute("BEGIN IMMEDIATE")
                await mystery.options(within=file).submit(SECRET)
                file.execute("COMMIT")
        else:
            connection = await asyncpg.connect(database.url)
            async with connection.transaction():
                await mystery.options(within=connection).submit(SECRET)
            await connection.close()

    assert SECRET not in await everything(database)
    assert "~k1." in await everything(database)


async def test_recurring_jobs_are_encoded(database: Database, store: Store) -> None:
    ran = asyncio.Event()
    async with locked(database, "k1") as hold:

        @hold.every("1s", missed="latest")
        @hold.job("tick")
        async def tick(word: str = SECRET) -> None:
            ran.set()

        async with hold.worker(poll=0.05), asyncio.timeout(TIMEOUT):
            await ran.wait()

    assert SECRET not in await everything(database)


async def test_neither_corrected_arguments_nor_the_original_ones_can_be_read(
    store: Store, database: Database
) -> None:
    plain: Store = EncodedStore(store, Lock("k1"))
    job_id = await a_letter(plain, a_job(args=json.dumps({"who": SECRET})))
    args = json.dumps({"who": f"not {SECRET}"})

    await moved(plain, job_id, triage(Cause.DATA, actor="ada"), args=args)

    assert SECRET not in await everything(database)
    assert (await plain.get(job_id)).args == args
    assert await plain.dead_letters.original_args(job_id) == json.dumps({"who": SECRET})


async def test_letters_leave_and_come_back_as_they_are_stored(store: Store) -> None:
    plain: Store = EncodedStore(store, Lock("k1"))
    job_id = await a_letter(plain, a_job(args=json.dumps({"who": SECRET})))
    before = await plain.get(job_id)

    records = await plain.retention.letter_records([job_id])
    await plain.retention.delete_letters([(job_id, 1)])
    await plain.retention.restore_letters(records)

    assert SECRET not in json.dumps(records)
    assert await plain.get(job_id) == before


class Request(BaseModel):
    """A message of another system."""

    id: str
    text: str


async def test_what_is_stored_of_a_message_is_encoded(database: Database, store: Store) -> None:
    hold = locked(database, "one")
    hold.broker("local", lambda _: None)
    hold.message("request", identity="id")(Request)

    @hold.job("keep")
    async def keep(text: str) -> str:
        return text

    @hold.consumer(Request, queue="requests")
    def take(request: Request) -> JobCall[str]:
        return keep.call(request.text)

    async with hold:
        made = await hold.feed(Request, {"id": "r-1", "text": SECRET})
        again = await hold.feed(Request, {"id": "r-1", "text": SECRET})
        refused = await hold.feed(Request, {"id": "r-2", "text": [SECRET]})
        stored = await everything(database)
        letter = await hold.read(refused.job_id or "")
        async with hold.worker(poll=0.05):
            job = await hold.wait(made.job_id or "", timeout=TIMEOUT)

    assert SECRET not in stored
    assert SECRET in letter.args
    assert again.job_id == made.job_id
    assert hold.load_result(job) == SECRET
