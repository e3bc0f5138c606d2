"""A stage that is done is done: its result is stored, with its type, and answers ever after."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from holdfast import ErrorClass, Holdfast, JobFailed, Retryable, current
from holdfast.core.errors import StoreReadOnly
from holdfast.core.jobs.stages import StageRow, StageStatus
from holdfast.ports import Store
from holdfast.types import EventKind
from tests.contract.steps import TIMEOUT


class Colour(Enum):
    RED = "red"


class Critique(BaseModel):
    score: float
    said_at: datetime
    parts: list["Critique"] = []


@dataclass(frozen=True)
class Page:
    title: str
    size: int
    at: datetime


NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


@pytest.mark.clause("STG-1")
async def test_a_finished_stage_is_not_computed_again(hold: Holdfast, store: Store) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("fetch")
    async def fetch(n: int) -> int:
        runs["fetch"] += 1
        return n + runs["fetch"]

    @hold.stage("llm")
    async def llm(n: int) -> int:
        runs["llm"] += 1
        if runs["llm"] < 3:
            raise Retryable("overloaded")
        return n * 100

    @hold.job("review")
    async def review(n: int) -> int:
        runs["body"] += 1
        return await llm(await fetch(n))

    async with hold.worker(poll=0.05):
        job = await review.submit(1)
        assert await job.result(timeout=TIMEOUT) == 200

    assert runs == {"body": 3, "fetch": 1, "llm": 3}
    stages = {str(row.key): (row.status, row.result) for row in await store.stages([job.id])}
    assert stages == {"fetch": (StageStatus.DONE, "2"), "llm": (StageStatus.DONE, "200")}
    assert [event.meta["stage"] for event in await job.events() if event.kind is EventKind.STAGE] == [
        "fetch",
        "llm",
    ]


@pytest.mark.clause("STG-1")
async def test_a_result_is_stored_before_its_job_goes_on(hold: Holdfast, store: Store) -> None:
    @hold.stage("fetch")
    async def fetch(n: int) -> int:
        return n + 1

    @hold.job("review")
    async def review(n: int) -> list[str | None]:
        await fetch(n)
        return [row.result for row in await store.stages([current().job_id])]

    async with hold.worker(poll=0.05):
        assert await (await review.submit(1)).result(timeout=TIMEOUT) == ["2"]


@pytest.mark.clause("STG-1")
async def test_each_call_of_a_stage_is_known_by_its_order(hold: Holdfast) -> None:
    runs: list[int] = []

    @hold.stage("square")
    async def square(n: int) -> int:
        runs.append(n)
        return n * n

    @hold.job("sum")
    async def total() -> int:
        found = [await square(n) for n in (1, 2, 3)]
        if len(runs) == 3:
            runs.append(0)
            raise Retryable("once more")
        return sum(found)

    async with hold.worker(poll=0.05):
        assert await (await total.submit()).result(timeout=TIMEOUT) == 14

    assert runs == [1, 2, 3, 0]


@pytest.mark.clause("STG-1")
async def test_a_stage_stays_finished_when_its_job_is_retried(hold: Holdfast) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("fetch")
    async def fetch() -> str:
        runs["fetch"] += 1
        return "page"

    @hold.stage("llm", attempts=1)
    async def llm(page: str) -> str:
        runs["llm"] += 1
        if runs["llm"] == 1:
            raise Retryable("down")
        return page.upper()

    @hold.job("review")
    async def review() -> str:
        return await llm(await fetch())

    async with hold.worker(poll=0.05):
        job = await review.submit()
        with pytest.raises(JobFailed):
            await job.result(timeout=TIMEOUT)
        await job.retry()
        assert await job.result(timeout=TIMEOUT) == "PAGE"

    assert runs == {"fetch": 1, "llm": 2}


@pytest.mark.clause("STG-1")
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Critique, Critique(score=0.5, said_at=NOON, parts=[Critique(score=1, said_at=NOON)])),
        (Page, Page("home", 3, NOON)),
        (datetime, NOON),
        (date, NOON.date()),
        (timedelta, timedelta(hours=1.5)),
        (Decimal, Decimal("0.10")),
        (UUID, UUID(int=7)),
        (Colour, Colour.RED),
        (dict[str, tuple[int, str]], {"a": (1, "x")}),
        (set[int], {1, 2}),
        (list[Page], [Page("home", 3, NOON)]),
        (Critique | None, None),
        (bytes, b"text"),
    ],
    ids=lambda value: getattr(value, "__name__", None) if isinstance(value, type) else None,
)
async def test_a_result_comes_back_with_the_type_that_was_declared(
    hold: Holdfast, declared: Any, value: Any
) -> None:
    seen: list[Any] = []

    async def make() -> Any:
        return value

    make.__annotations__["return"] = declared
    made = hold.stage("make")(make)

    async def use(given: Any) -> Any:
        seen.append(await made())
        if len(seen) == 1:
            raise Retryable("read it from the store")
        return given

    use.__annotations__.update(given=declared, **{"return": declared})
    async with hold.worker(poll=0.05):
        result = await (await hold.job("use")(use).submit(value)).result(timeout=TIMEOUT)

    assert [*seen, result] == [value, value, value]
    assert {type(each) for each in (*seen, result)} == {type(value)}


@pytest.mark.clause("STG-1")
async def test_a_stored_stage_never_answers_a_call_with_other_arguments(hold: Holdfast) -> None:
    versions = ["old", "new"]

    @hold.stage("fetch")
    async def fetch(url: str) -> str:
        return f"content of {url}"

    @hold.job("changed")
    async def changed() -> str:
        page = await fetch(versions.pop(0))
        if versions:
            raise Retryable("deployed in between")
        return page

    async with hold.worker(poll=0.05):
        job = await changed.submit()
        with pytest.raises(JobFailed, match="stage fetch was stored with other arguments") as raised:
            await job.result(timeout=TIMEOUT)

    assert raised.value.failure.error_class is ErrorClass.STAGE_MISMATCH


async def test_a_stage_outside_a_job_is_the_function_it_was_made_from(hold: Holdfast) -> None:
    @hold.stage("fetch")
    async def fetch(n: int) -> int:
        return n + 1

    @hold.stage("plain")
    def plain(n: int) -> int:
        return n + 2

    assert (await fetch(1), plain(1), await plain.in_thread(1)) == (2, 3, 3)


@pytest.mark.parametrize("key", ["a\0b", "a\ud800b", "x" * 1000])
async def test_a_stage_key_that_cannot_be_stored_fails_its_job_and_no_neighbour(
    hold: Holdfast, key: str
) -> None:
    @hold.stage("fetch")
    async def fetch() -> int:
        return 1

    @hold.job("odd")
    async def odd() -> int:
        return await fetch.options(key=key)()

    @hold.job("even")
    async def even() -> int:
        return await fetch()

    async with hold.worker(poll=0.05):
        bad, good = await odd.submit(), await even.submit()

        assert await good.result(timeout=TIMEOUT) == 1
        with pytest.raises(JobFailed, match="printable text"):
            await bad.result(timeout=TIMEOUT)


class ForgetfulOnce:
    """A store that cannot read the stages of a job the first time it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refusals = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        if self.refusals == 0:
            self.refusals += 1
            raise StoreReadOnly("not now")
        return await self._store.stages(job_ids)


@pytest.mark.clause("STG-2")
async def test_a_job_whose_stages_cannot_be_read_is_given_back_with_its_attempt(hold: Holdfast) -> None:
    seen: list[int] = []

    @hold.stage("fetch")
    async def fetch() -> str:
        return "page"

    @hold.job("work", attempts=2)
    async def work() -> str:
        await fetch()
        seen.append(current().attempt)
        if len(seen) == 1:
            raise TimeoutError("once")
        return "done"

    forgetful = ForgetfulOnce(hold.runtime.store)
    hold.runtime = replace(hold.runtime, store=forgetful)
    async with hold.worker(poll=0.05):
        assert await (await work.submit()).result(timeout=TIMEOUT) == "done"

    assert (seen, forgetful.refusals) == ([1, 2], 1)
