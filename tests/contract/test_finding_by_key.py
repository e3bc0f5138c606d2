"""Jobs are found by what their submitter knows of them: key, subject, version, and the beginning of an id."""

import pytest

from holdfast import Holdfast, JobFilter
from holdfast.cli.results import full_id
from holdfast.core.errors import JobNotFound
from tests.contract.steps import TIMEOUT


async def test_jobs_are_found_by_key_subject_and_version(hold: Holdfast) -> None:
    @hold.job("grade")
    async def grade(essay: str) -> int:
        return len(essay)

    @hold.job("other")
    async def other() -> None:
        return None

    keyed = await grade.options(key="k-1").submit("a")
    elsewhere = await other.options(key="k-1").submit()
    first = await grade.options(subject="essay-7", version=1).submit("b")
    async with hold.worker(poll=0.05):  # live and ended jobs alike
        await first.result(timeout=TIMEOUT)
    second = await grade.options(subject="essay-7", version=2, rerun=True).submit("c")

    async def found(**filters: object) -> set[str]:
        return {job.id for job in await hold.find(JobFilter(**filters))}  # type: ignore[arg-type]

    assert await found(key="k-1") == {keyed.id, elsewhere.id}
    assert await found(key="k-1", name="grade") == {keyed.id}
    assert await found(key="k-2") == set()
    assert await found(subject="essay-7") == {first.id, second.id}
    assert await found(subject="essay-7", version=2) == {second.id}
    assert await hold.runtime.store.keys_of([keyed.id, first.id, second.id]) == {keyed.id: "k-1"}


async def test_a_job_is_meant_by_the_beginning_of_its_id(hold: Holdfast) -> None:
    @hold.job("quick")
    async def quick() -> None:
        return None

    one, two = await quick.submit(), await quick.submit()
    different = next(place for place in range(36) if one.id[place] != two.id[place])

    assert await full_id(hold, one.id[: different + 1]) == one.id
    assert await full_id(hold, one.id.upper()) == one.id
    with pytest.raises(JobNotFound, match=f"several ids begin with .*{min(one.id, two.id)}"):
        await full_id(hold, one.id[:different])
    with pytest.raises(JobNotFound, match="no job whose id begins with 'ffff'"):
        await full_id(hold, "ffff")
