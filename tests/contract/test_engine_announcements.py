"""A worker that knows a job turns its announcements into messages of the outbox: once each, and in order."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Backoff, Holdfast, JobFunction, Permanent, Retryable, current
from holdfast.core.jobs.transitions import complete
from holdfast.core.messages.announcements import bits_of
from holdfast.engine.messages.announcer import Announcer
from holdfast.errors import ConfigError
from holdfast.ports import Store
from holdfast.testing import inline, simulation
from holdfast.types import Announcement, AnnouncementKind
from tests.builders import a_job
from tests.contract.callers import a_caller
from tests.contract.conftest import Database, Logger, SqliteFile
from tests.contract.outbox_rows import outbox_rows
from tests.contract.steps import TIMEOUT, a_claim, claimed, submitted


class Callback(BaseModel):
    request: str
    status: str
    attempt: int
    score: float | None = None
    error: str | None = None


@pytest.fixture
def callbacks(hold: Holdfast) -> type[Callback]:
    """Declare the message that the jobs of these tests publish."""
    hold.broker("local", lambda _: None)
    return hold.message("grading.callback", exchange="grading", identity=("request", "status", "attempt"))(
        Callback
    )


def callback(announcement: Announcement) -> Callback:
    return Callback(
        request=announcement.args["request"],
        status=announcement.kind,
        attempt=announcement.attempt,
        score=announcement.result,
        error=None if announcement.failure is None else announcement.failure.code,
    )


ANNOUNCE: dict[str, Any] = dict.fromkeys(AnnouncementKind, callback)


def declared(
    hold: Holdfast, failures: list[Exception] | None = None, **options: Any
) -> JobFunction[[str], float]:
    """Declare a job that raises these failures, one after the other, and then returns a score."""
    left = list(failures or [])

    @hold.job("grade", announce=ANNOUNCE, **options)
    async def grade(request: str) -> float:
        if left:
            raise left.pop(0)
        return 7.5

    return grade


async def messages(database: Database, count: int) -> list[dict[str, Any]]:
    """Wait until the outbox has that many messages, and return them."""
    async with asyncio.timeout(TIMEOUT):
        while len(found := await outbox_rows(database)) < count:
            await asyncio.sleep(0.01)
    return found


def said(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    payloads = [json.loads(row["payload"]) for row in found]
    return [(payload["status"], payload["attempt"]) for payload in payloads]


@pytest.mark.clause("GRD-5")
async def test_a_job_announces_its_retries_and_its_result_in_order(
    hold: Holdfast, database: Database, callbacks: type[Callback]
) -> None:
    grade = declared(hold, [Retryable("busy"), Retryable("busy")])

    async with hold.worker(poll=0.05):
        handle = await grade.options(key="r1").submit("r1")
        found = await messages(database, 3)

    assert said(found) == [("retrying", 1), ("retrying", 2), ("completed", 3)]
    assert json.loads(found[2]["payload"])["score"] == 7.5
    assert {(row["aggregate_type"], row["aggregate_id"]) for row in found} == {("grade", handle.id)}
    assert [row["message_id"] for row in found] == ["r1:retrying:1", "r1:retrying:2", "r1:completed:3"]
    assert {str(row["job_id"]) for row in found} == {handle.id}


@pytest.mark.clause("GRD-5")
async def test_a_failed_job_announces_the_public_part_of_its_failure(
    hold: Holdfast, database: Database, callbacks: type[Callback]
) -> None:
    seen: list[Announcement] = []

    def collect(announcement: Announcement) -> None:
        seen.append(announcement)

    @hold.job("grade", announce={"failed": collect, "completed": callback})
    async def grade(request: str, *, strict: bool = True) -> float:
        if strict:
            raise Permanent("the essay is empty")
        return 1.0

    async with hold.worker(poll=0.05):
        failed = await grade.options(key="k1", subject="essay", version=2).submit("r1")
        await hold.wait(failed.id, timeout=TIMEOUT)
        await grade.submit("r2", strict=False)
        await messages(database, 1)  # in the order of the announcements

    [announcement] = seen
    assert announcement.failure is not None
    assert announcement.failure.message == "the essay is empty"
    assert (announcement.failure.retryable, announcement.result) == (False, None)
    assert announcement.args == {"request": "r1", "strict": True}
    assert (announcement.key, announcement.subject, announcement.version) == ("k1", "essay", 2)
    assert (announcement.kind, announcement.generation, announcement.attempt) == ("failed", 1, 1)
    assert announcement.at == (await failed.read()).finished_at


@pytest.mark.clause("SLA-2")
async def test_an_end_by_a_sweep_is_rendered_by_a_worker_that_knows_the_job(
    hold: Holdfast, store: Store, database: Database, callbacks: type[Callback]
) -> None:
    declared(hold)
    past = datetime(2020, 1, 1, tzinfo=UTC)
    [job_id] = await submitted(
        store,
        a_job(name="grade", args='{"request":"r1"}', announces=bits_of(AnnouncementKind), deadline_at=past),
    )
    assert await store.expire(limit=10) == [job_id]  # by a process without the code of the job

    async with hold.worker(poll=0.05):
        [row] = await messages(database, 1)

    assert said([row]) == [("timed_out", 0)]
    assert json.loads(row["payload"])["error"] == "EXPIRED"
    assert str(row["job_id"]) == job_id


async def test_a_replayed_job_announces_its_new_generation(
    hold: Holdfast, database: Database, callbacks: type[Callback]
) -> None:
    grade = declared(hold, [Permanent("down")])

    async with hold.worker(poll=0.05):
        handle = await grade.submit("r1")
        await hold.wait(handle.id, timeout=TIMEOUT)
        await handle.retry()
        found = await messages(database, 2)

    assert said(found) == [("failed", 1), ("completed", 1)]


async def test_a_completion_in_the_callers_transaction_is_announced_with_its_commit(
    hold: Holdfast, database: Database, callbacks: type[Callback]
) -> None:
    file = database.path if isinstance(database, SqliteFile) else None
    caller = a_caller("aiosqlite" if file else "asyncpg", dsn=None if file else database.url, path=file)
    await caller.open()

    @hold.job("grade", announce=ANNOUNCE)
    async def grade(request: str) -> float:
        await caller.begin()
        await current().complete(float(current().attempt), within=caller.within)
        await (caller.rollback() if current().attempt == 1 else caller.commit())
        return 0.0

    async with hold.worker(poll=0.05):
        await grade.submit("r1")
        found = await messages(database, 2)
    await caller.close()

    assert said(found) == [("retrying", 1), ("completed", 2)]
    assert json.loads(found[1]["payload"])["score"] == 2.0


async def test_scheduled_jobs_and_children_announce_their_ends(
    hold: Holdfast, database: Database, callbacks: type[Callback]
) -> None:
    grade = declared(hold)
    hold.every("1s", args=("scheduled",))(grade)

    @hold.job("parent")
    async def parent() -> None:
        await grade.submit("child")

    async with hold.worker(poll=0.05):
        await (await parent.submit()).result(timeout=TIMEOUT)
        async with asyncio.timeout(TIMEOUT):
            while {json.loads(row["payload"])["request"] for row in await outbox_rows(database)} != {
                "scheduled",
                "child",
            }:
                await asyncio.sleep(0.02)


async def test_a_function_returns_one_message_or_several_or_none(
    hold: Holdfast, database: Database, callbacks: type[Callback]
) -> None:
    answers: dict[str, Any] = {
        "none": lambda _: None,
        "two": lambda announcement: [callback(announcement), callback(announcement)],
        "one": callback,
    }

    @hold.job("grade", announce={"completed": lambda it: answers[it.args["request"]](it)})
    async def grade(request: str) -> float:
        return 1.0

    async with hold.worker(slots=1, poll=0.05):
        for request in answers:
            await (await grade.submit(request)).result(timeout=TIMEOUT)
        found = await messages(database, 3)

    assert [json.loads(row["payload"])["request"] for row in found] == ["two", "two", "one"]


async def test_a_render_that_raises_is_postponed_and_raises_one_alarm(
    hold: Holdfast, store: Store, database: Database, logger: Logger, callbacks: type[Callback]
) -> None:
    broken = True

    def render(announcement: Announcement) -> Callback:
        if broken:
            raise RuntimeError("no template")
        return callback(announcement)

    @hold.job("grade", announce={"completed": render})
    async def grade(request: str) -> float:
        return 1.0

    announcer = Announcer(hold.runtime)
    await grade.submit("r1")
    claim = await claimed(store)
    await store.settle("worker", [complete(claim, "7.5")])
    for _ in range(7):
        await announcer.run_once()
        await make_due(database)
    tickets = await hold.runtime.store.tickets.take(limit=10, lease=timedelta(minutes=1))
    broken = False
    await announcer.run_once()

    assert [line["tries"] for line in logger.lines("announcement failed")] == [1, 2, 3, 4, 5, 6, 7]
    assert [(ticket.kind, ticket.facts["level"]) for ticket in tickets] == [("announcement failed", "alert")]
    assert "no template" in tickets[0].facts["title"]
    assert said(await outbox_rows(database)) == [("completed", 1)]


async def make_due(database: Database) -> None:
    """Let the time pass after which a postponed announcement is taken again."""
    caller = (
        a_caller("aiosqlite", path=database.path)
        if isinstance(database, SqliteFile)
        else a_caller("asyncpg", dsn=database.url)
    )
    table = "holdfast_announcements" if isinstance(database, SqliteFile) else "holdfast.announcements"
    await caller.open()
    await caller.begin()
    await caller.run(f"UPDATE {table} SET due_at = at")
    await caller.commit()
    await caller.close()


async def test_what_is_no_message_is_refused_and_never_published(
    hold: Holdfast, database: Database, logger: Logger, callbacks: type[Callback]
) -> None:
    @hold.job("grade", announce={"completed": lambda _: {"status": "completed"}})
    async def grade(request: str) -> float:
        return 1.0

    await grade.submit("r1")
    async with hold.worker(poll=0.05), asyncio.timeout(TIMEOUT):
        while not logger.lines("announcement failed"):
            await asyncio.sleep(0.01)

    assert "returned a dict" in logger.lines("announcement failed")[0]["message"]
    assert await outbox_rows(database) == []


async def test_an_announcement_that_the_job_no_longer_declares_is_dropped(
    hold: Holdfast, store: Store, database: Database, callbacks: type[Callback]
) -> None:
    @hold.job("grade", announce={"failed": callback})
    async def grade(request: str) -> float:
        return 1.0

    claim = await a_claim(store, a_job(name="grade", announces=bits_of(AnnouncementKind)))
    await store.settle("worker", [complete(claim, "7.5")])
    await Announcer(hold.runtime).run_once()

    assert await outbox_rows(database) == []
    assert await store.announcements.take(["grade"], limit=1, lease=timedelta(hours=1)) == []


async def _async_render(announcement: Announcement) -> None: ...


@pytest.mark.parametrize(
    ("announce", "why"),
    [
        ({"done": callback}, "it takes completed, failed, cancelled, timed_out, retrying"),
        ({"completed": "callback"}, "needs a plain function"),
        ({"completed": _async_render}, "needs a plain function"),
    ],
    ids=["unknown kind", "no function", "async function"],
)
def test_a_declaration_that_cannot_announce_is_refused(announce: Any, why: str) -> None:
    hold = Holdfast("sqlite:///never-opened.db")

    with pytest.raises(ConfigError, match=why):
        hold.job("grade", announce=announce)(_grade)


async def _grade(request: str) -> float:
    return 1.0


def in_tests() -> tuple[Holdfast, JobFunction[[str], float], list[str]]:
    """Declare a job that announces its result, and note which announcements are rendered."""
    hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db", attempts=2, backoff=Backoff.none())
    rendered: list[str] = []

    def note_kind(announcement: Announcement) -> None:
        rendered.append(announcement.kind)

    @hold.job("grade", announce=dict.fromkeys(map(str, AnnouncementKind), note_kind))
    async def grade(request: str) -> float:
        if current().attempt == 1:
            raise Retryable("busy")
        return 1.0

    return hold, grade, rendered


def test_inline_announcements_are_rendered_before_a_submission_returns() -> None:
    hold, grade, rendered = in_tests()

    async def submit() -> None:
        await grade.submit("r1")

    with inline(hold):
        asyncio.run(submit())

    assert rendered == ["retrying", "completed"]


def test_in_a_simulation_announcements_are_rendered() -> None:
    hold, grade, rendered = in_tests()

    async def submit() -> None:
        handle = await grade.submit("r1")
        await handle.result()

    with simulation(hold) as simulated:
        simulated.run(submit())
        simulated.run(simulated.advance("5m"))

    assert rendered == ["retrying", "completed"]
