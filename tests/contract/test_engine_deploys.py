"""What may change in the code while jobs are in flight: each line of the table in the guide on stages."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel

from holdfast import Backoff, ErrorClass, Holdfast, Job, JobFilter, JobFunction, Status
from tests.contract.conftest import Database
from tests.contract.steps import TIMEOUT, eventually

Body = Callable[[], Awaitable[Any]]
Declare = Callable[[Holdfast], Body]
"""Declares the stages of one version of the code, and gives what the job does before and after the deploy."""


def the_job(hold: Holdfast, body: Body) -> JobFunction[[], Any]:
    @hold.job("order")
    async def order() -> Any:
        found = await body()
        await hold.wait_for("deployed")
        return found

    return order


def a_version(database: Database) -> Holdfast:
    return Holdfast(database.url, attempts=1, backoff=Backoff.none())


async def after_a_deploy(database: Database, old: Declare, new: Declare, *, earlier: bool = False) -> Job:
    """Begin a job with *old* code, and end it with *new*; *earlier*: its stages were stored by an earlier version."""
    async with a_version(database) as before:
        order = the_job(before, old(before))
        async with before.worker(poll=0.05):
            job = await order.submit()
            await eventually(job.read, lambda seen: seen.waiting)
    if earlier:
        await _forget_brief_fingerprints(database.url)
    async with a_version(database) as after:
        the_job(after, new(after))
        async with after.worker(poll=0.05):
            await after.signal(job.id, "deployed")
            return await after.wait(job.id, timeout=TIMEOUT)


async def _forget_brief_fingerprints(url: str) -> None:
    """Leave the rows as the version before this column stored them."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("UPDATE holdfast_stages SET brief_fingerprint = ''")
        connection.close()
    else:
        server = await asyncpg.connect(url)
        await server.execute("UPDATE holdfast.stages SET brief_fingerprint = ''")
        await server.close()


def plain(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str) -> str:
        return f"old {url}"

    return lambda: fetch("u")


def limited(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, limit: int = 10) -> str:
        return f"old {url}"

    return lambda: fetch("u")


def with_an_optional_parameter(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, strict: bool = False) -> str:
        return f"new {url}"

    return lambda: fetch("u")


def with_one_at_its_default(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, *, strict: bool = False) -> str:
        return f"new {url}"

    return lambda: fetch("u", strict=False)


def with_any_others(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, *more: str, **others: int) -> str:
        return f"new {url}"

    return lambda: fetch("u")


def with_one_in_front(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, tags: list[str] | None = None, limit: int = 10, strict: bool = False) -> str:
        return f"new {url}"

    return lambda: fetch("u")


@pytest.mark.parametrize("earlier", [False, True], ids=["stored now", "stored by an earlier version"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (plain, with_an_optional_parameter),
        (plain, with_one_at_its_default),
        (plain, with_any_others),
        (limited, with_one_in_front),
    ],
)
async def test_a_parameter_with_a_default_can_be_added_to_a_stage(
    database: Database, old: Declare, new: Declare, earlier: bool
) -> None:
    job = await after_a_deploy(database, old, new, earlier=earlier)

    assert (job.status, job.result) == (Status.COMPLETED, '"old u"')


async def test_the_old_code_goes_on_with_what_the_new_code_stored(database: Database) -> None:
    job = await after_a_deploy(database, with_one_in_front, plain)

    assert (job.status, job.result) == (Status.COMPLETED, '"new u"')


def with_another_default(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, limit: int = 20) -> str:
        return f"new {url}"

    return lambda: fetch("u")


def with_the_old_default_given(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, limit: int = 20) -> str:
        return f"new {url}"

    return lambda: fetch("u", limit=10)


@pytest.mark.parametrize("new", [with_another_default, with_the_old_default_given])
async def test_another_default_leaves_a_finished_stage_as_it_is(database: Database, new: Declare) -> None:
    job = await after_a_deploy(database, limited, new)

    assert (job.status, job.result) == (Status.COMPLETED, '"old u"')


def with_a_required_parameter(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, strict: bool) -> str:
        return f"new {url}"

    return lambda: fetch("u", strict=False)


def with_a_renamed_parameter(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(address: str) -> str:
        return f"new {address}"

    return lambda: fetch("u")


def with_one_not_at_its_default(hold: Holdfast) -> Body:
    @hold.stage("fetch")
    async def fetch(url: str, strict: bool = False) -> str:
        return f"new {url}"

    return lambda: fetch("u", strict=True)


@pytest.mark.parametrize("earlier", [False, True], ids=["stored now", "stored by an earlier version"])
@pytest.mark.parametrize(
    "new", [with_a_required_parameter, with_a_renamed_parameter, with_one_not_at_its_default]
)
async def test_a_finished_stage_does_not_answer_other_arguments(
    database: Database, new: Declare, earlier: bool
) -> None:
    job = await after_a_deploy(database, plain, new, earlier=earlier)

    assert job.failure is not None
    assert job.failure.error_class is ErrorClass.STAGE_MISMATCH


def renamed(hold: Holdfast) -> Body:
    @hold.stage("download")
    async def download(url: str) -> str:
        return f"new {url}"

    return lambda: download("u")


async def test_a_renamed_stage_runs_again(database: Database) -> None:
    assert (await after_a_deploy(database, plain, renamed)).result == '"new u"'


def pair(hold: Holdfast, word: str) -> tuple[Any, Any]:
    @hold.stage("first")
    async def first(n: int) -> str:
        return f"{word} first {n}"

    @hold.stage("second")
    async def second(n: int) -> str:
        return f"{word} second {n}"

    return first, second


def in_order(hold: Holdfast) -> Body:
    first, second = pair(hold, "old")

    async def body() -> list[str]:
        return [await first(1), await second(2)]

    return body


def in_another_order(hold: Holdfast) -> Body:
    first, second = pair(hold, "new")

    async def body() -> list[str]:
        return [await second(2), await first(1)]

    return body


def only_the_second(hold: Holdfast) -> Body:
    _, second = pair(hold, "new")

    async def body() -> list[str]:
        return [await second(2)]

    return body


def one_more_in_front(hold: Holdfast) -> Body:
    first, second = pair(hold, "new")

    @hold.stage("zeroth")
    async def zeroth() -> str:
        return "new zeroth"

    async def body() -> list[str]:
        return [await zeroth(), await first(1), await second(2)]

    return body


@pytest.mark.parametrize(
    ("new", "result"),
    [
        (in_another_order, '["old second 2","old first 1"]'),
        (only_the_second, '["old second 2"]'),
        (one_more_in_front, '["new zeroth","old first 1","old second 2"]'),
    ],
)
async def test_stages_can_change_places_come_and_go(database: Database, new: Declare, result: str) -> None:
    assert (await after_a_deploy(database, in_order, new)).result == result


def called_once_more_in_front(hold: Holdfast) -> Body:
    first, _ = pair(hold, "new")

    async def body() -> list[str]:
        return [await first(0), await first(1)]

    return body


def called_with_keys(word: str, *numbers: int) -> Declare:
    def declare(hold: Holdfast) -> Body:
        first, _ = pair(hold, word)

        async def body() -> list[str]:
            return [await first.options(key=str(n))(n) for n in numbers]

        return body

    return declare


async def test_one_more_call_in_front_takes_the_place_of_the_next_unless_there_are_keys(
    database: Database,
) -> None:
    shifted = await after_a_deploy(database, in_order, called_once_more_in_front)
    by_keys = await after_a_deploy(database, called_with_keys("old", 1), called_with_keys("new", 0, 1))

    assert shifted.failure is not None
    assert shifted.failure.error_class is ErrorClass.STAGE_MISMATCH
    assert by_keys.result == '["new first 0","old first 1"]'


class Page(BaseModel):
    title: str


class PageWithSize(BaseModel):
    title: str
    size: int = 0


class PageWithOwner(BaseModel):
    title: str
    owner: str


def returning(kind: type[BaseModel], **fields: Any) -> Declare:
    def declare(hold: Holdfast) -> Body:
        async def read() -> Any:
            return kind(title="t", **fields)

        read.__annotations__["return"] = kind
        stage: Any = hold.stage("read")(read)

        async def body() -> Any:
            return (await stage()).model_dump()

        return body

    return declare


async def test_a_stored_result_is_read_with_the_new_type(database: Database) -> None:
    fits = await after_a_deploy(database, returning(Page), returning(PageWithSize))
    does_not = await after_a_deploy(database, returning(Page), returning(PageWithOwner, owner="Ada"))

    assert fits.result == '{"title":"t","size":0}'
    assert does_not.failure is not None
    assert does_not.failure.error_class is ErrorClass.SCHEMA_INVALID


async def stored_and_run(database: Database, old: Callable[..., Any], new: Callable[..., Any]) -> Job:
    """Submit a job with the *old* function, and run it with the *new* one."""
    async with a_version(database) as before:
        job = await before.job("grade")(old).submit("essay", 1)
    async with a_version(database) as after:
        after.job("grade")(new)
        async with after.worker(poll=0.05):
            return await after.wait(job.id, timeout=TIMEOUT)


async def graded(essay: str, points: int = 0) -> str: ...  # type: ignore[empty-body]  # it never runs


async def with_one_more(essay: str, points: int = 0, strict: bool = True) -> str:
    return f"{essay} {points} {strict}"


async def with_one_less(essay: str) -> str:
    return essay


async def with_a_needed_one(essay: str, points: int, strict: bool) -> str:
    return f"{essay} {points} {strict}"


async def test_a_job_can_get_and_lose_parameters_that_have_a_default(database: Database) -> None:
    more = await stored_and_run(database, graded, with_one_more)
    less = await stored_and_run(database, graded, with_one_less)
    needed = await stored_and_run(database, graded, with_a_needed_one)

    assert (more.result, less.result) == ('"essay 1 True"', '"essay"')
    assert needed.failure is not None
    assert needed.failure.error_class is ErrorClass.SCHEMA_INVALID


def submitting(child: Callable[..., Any]) -> Declare:
    def declare(hold: Holdfast) -> Body:
        job: Any = hold.job("child")(child)

        async def body() -> str:
            return str((await job.submit("essay")).id)

        return body

    return declare


async def test_a_child_with_one_more_parameter_is_submitted_again(database: Database) -> None:
    await after_a_deploy(database, submitting(graded), submitting(with_one_more))

    async with a_version(database) as hold:
        assert len(await hold.find(JobFilter(name="child"))) == 2
