"""A request that is received again is answered again, and nothing is done a second time."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Holdfast, Permanent
from holdfast.types import Announcement, AnnouncementKind, JobCall, ReceivedAs, Reply
from tests.contract.conftest import Database
from tests.contract.consumers import GradingRequest
from tests.contract.outbox_rows import outbox_rows
from tests.contract.steps import TIMEOUT


class Callback(BaseModel):
    """The answer to a request."""

    requestId: str  # noqa: N815 - as the other system reads it
    status: str
    score: float | None = None
    error: str | None = None


def callback(announcement: Announcement) -> Callback:
    return Callback(
        requestId=announcement.args["request_id"],
        status=announcement.kind,
        score=announcement.result,
        error=None if announcement.failure is None else announcement.failure.message,
    )


ANNOUNCE: dict[str, Any] = dict.fromkeys(AnnouncementKind, callback)


def application(
    hold: Holdfast,
    grade: Callable[[str], Awaitable[float]],
    *,
    announce: Mapping[str, Any] = ANNOUNCE,
    **options: Any,
) -> None:
    """Declare a job for each request, which announces how it ended."""
    local = hold.broker("local", lambda _: None)
    hold.message("grading.request", identity="requestId", broker=local)(GradingRequest)
    hold.message(
        "grading.callback", identity=("requestId", "status"), reply_to=["callback.of.eu"], broker=local
    )(Callback)

    @hold.job("grade", announce=announce, **options)
    async def graded(request_id: str) -> float:
        return await grade(request_id)

    @hold.consumer(GradingRequest, queue="grading.request")
    def take(request: GradingRequest) -> JobCall[float]:
        return graded.call(request.requestId)


async def answers(database: Database, count: int) -> list[dict[str, Any]]:
    """Wait until that many answers are in the outbox."""
    async with asyncio.timeout(TIMEOUT):
        while len(found := await outbox_rows(database)) < count:
            await asyncio.sleep(0.01)
    return [json.loads(row["payload"]) for row in found]


@pytest.mark.clause("OUT-5")
async def test_a_completed_request_is_answered_again_with_the_stored_result(
    hold: Holdfast, database: Database
) -> None:
    calls: list[str] = []

    async def grade(request_id: str) -> float:
        calls.append(request_id)
        return 7.5

    application(hold, grade)

    async with hold.worker(poll=0.05):
        for number in range(3):
            await hold.feed(GradingRequest, {"requestId": "r-1"})
            found = await answers(database, number + 1)

    assert found == [{"requestId": "r-1", "status": "completed", "score": 7.5, "error": None}] * 3
    assert calls == ["r-1"]


@pytest.mark.clause("OUT-5")
async def test_a_failed_request_is_answered_again_with_the_stored_error(
    hold: Holdfast, database: Database
) -> None:
    async def grade(_: str) -> float:
        raise Permanent("this essay is empty")

    application(hold, grade)

    async with hold.worker(poll=0.05):
        await hold.feed(GradingRequest, {"requestId": "r-1"})
        await answers(database, 1)
        await hold.feed(GradingRequest, {"requestId": "r-1"})
        found = await answers(database, 2)

    assert [answer["status"] for answer in found] == ["failed", "failed"]
    assert found[1]["error"] == "this essay is empty"


@pytest.mark.clause("OUT-5")
@pytest.mark.clause("IDM-4")
async def test_a_request_in_progress_is_neither_started_nor_answered_a_second_time(
    hold: Holdfast, database: Database
) -> None:
    calls: list[str] = []
    going_on = asyncio.Event()

    async def grade(request_id: str) -> float:
        calls.append(request_id)
        await going_on.wait()
        return 7.5

    application(hold, grade)

    async with hold.worker(poll=0.05), asyncio.timeout(TIMEOUT):
        received = [await hold.feed(GradingRequest, {"requestId": "r-1"})]
        while not calls:
            await asyncio.sleep(0.01)
        received += [await hold.feed(GradingRequest, {"requestId": "r-1"}) for _ in range(99)]
        before = await outbox_rows(database)
        going_on.set()
        found = await answers(database, 1)

    assert [one.outcome for one in received] == [ReceivedAs.NEW] + [ReceivedAs.REPEATED] * 99
    assert before == []
    assert len(found) == len(calls) == 1


@pytest.mark.clause("OUT-5")
async def test_a_cancelled_request_is_answered_again(hold: Holdfast, database: Database) -> None:
    async def grade(_: str) -> float:
        return 7.5

    application(hold, grade)
    first = await hold.feed(GradingRequest, {"requestId": "r-1"})
    await hold.cancel(first.job_id or "")

    async with hold.worker(poll=0.05):
        await answers(database, 1)
        await hold.feed(GradingRequest, {"requestId": "r-1"})
        found = await answers(database, 2)

    assert [answer["status"] for answer in found] == ["cancelled", "cancelled"]


TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.mark.clause("OBS-3")
async def test_the_trace_of_a_request_goes_on_in_its_job_and_in_the_answer(
    hold: Holdfast, database: Database
) -> None:
    application(hold, full_marks)

    async with hold.worker(poll=0.05):
        received = await hold.feed(GradingRequest, {"requestId": "r-1"}, headers={"traceparent": TRACE})
        await answers(database, 1)

    [row] = await outbox_rows(database)
    assert (await hold.read(received.job_id or "")).trace == TRACE
    assert json.loads(row["headers"]) == {"traceparent": TRACE}


@pytest.mark.parametrize(
    ("asked", "followed"), [("callback.of.eu", "callback.of.eu"), ("admin.commands", None), (None, None)]
)
async def test_the_routing_key_that_a_request_names_is_followed_if_the_declaration_allows_it(
    hold: Holdfast, database: Database, asked: str | None, followed: str | None
) -> None:
    def reply(announcement: Announcement) -> Reply:
        return Reply(callback(announcement), asked)

    application(hold, full_marks, announce={"completed": reply})

    async with hold.worker(poll=0.05):
        await hold.feed(GradingRequest, {"requestId": "r-1"})
        await answers(database, 1)
    await hold.publish(Callback(requestId="r-2", status="error"), reply_to=asked)

    assert [row["routing_key"] for row in await outbox_rows(database)] == [followed, followed]


async def full_marks(_: str) -> float:
    return 10.0
