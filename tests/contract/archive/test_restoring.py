"""A letter comes back whole from the archive, and its job can be replayed."""

import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from holdfast import Holdfast, JobFunction, Status
from holdfast.core.jobs.transitions import complete
from holdfast.errors import (
    ArchiveDamaged,
    ArchiveUnavailable,
    ConfigError,
    JobNotFound,
    LetterNotFound,
    StepRefused,
)
from holdfast.operations import LetterFilter
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.builders import a_job
from tests.contract.archive.conftest import HOUR, Opening
from tests.contract.conftest import DatabaseClock, Logger
from tests.contract.letters import ALL, all_failed, failed, letter_of, move_plans, planned, replayed
from tests.contract.services import Service, down
from tests.contract.steps import a_failed_job, claimed
from tests.contract.test_codec import Lock


@pytest.mark.clause("DLQ-3")
@pytest.mark.clause("OPS-2")
async def test_a_restored_letter_is_replayed_where_its_job_failed(
    hold: Holdfast,
    review: JobFunction[[int], int],
    fetched: Service,
    service: Service,
    clock: DatabaseClock,
) -> None:
    async with hold.worker(poll=0.05):
        [job_id] = await all_failed(hold, [await review.submit(7)])
        await replayed(hold, clock, await planned(hold, job_id))
    before, history = await letter_of(hold, job_id), await hold.events(job_id)
    await clock.advance(HOUR)
    assert await hold.dead_letters.archive() == 1
    with pytest.raises(JobNotFound):
        await hold.read(job_id)

    assert await hold.dead_letters.restore(job_id) == ([job_id], {})
    with pytest.raises(StepRefused, match="is in the database already, and was not restored"):
        await hold.dead_letters.restore(job_id)
    restored = await letter_of(hold, job_id)
    assert (restored.generation, restored.replays, restored.deaths) == (2, 1, 2)
    assert restored.failure == before.failure
    assert await hold.events(job_id) == history
    assert await hold.dead_letters.archive() == 0, "it counts as new"

    service.error = None
    token = await planned(hold, job_id)
    async with hold.worker(poll=0.05):
        await replayed(hold, clock, token)
    job = await hold.read(job_id)
    assert (job.status, job.generation, json.loads(job.result or "")) == (Status.COMPLETED, 3, 14)
    assert fetched.calls == [7], "what was finished stays so"
    assert (await letter_of(hold, job_id)).replays == 2


async def test_a_restored_job_goes_on_after_a_deploy_that_dropped_an_optional_parameter(
    opening: Opening, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    async with opening() as before:

        @before.stage("fetch")
        async def fetch(url: str, limit: int = 10) -> str:
            return f"page of {url}"

        @before.job("report")
        async def report() -> str:
            page = await fetch("u")
            await service.call()
            return page

        async with before.worker(poll=0.05):
            job_id = await failed(before, report)
        await clock.advance(HOUR)
        assert await before.dead_letters.archive() == 1

    service.error = None
    async with opening() as after:

        @after.stage("fetch")
        async def fetch_all(url: str) -> str:
            raise AssertionError("it was done before")

        @after.job("report")
        async def new_report() -> str:
            page = await fetch_all("u")
            await service.call()
            return page

        await after.dead_letters.restore(job_id)
        async with after.worker(poll=0.05):
            await replayed(after, clock, await planned(after, job_id))
        job = await after.read(job_id)

    assert (job.status, job.result) == (Status.COMPLETED, '"page of u"')


@pytest.mark.clause("DLQ-3")
@pytest.mark.clause("JOB-6")
async def test_a_worker_of_before_the_archive_can_write_nothing_after_it(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    @hold.job("greet")
    async def greet() -> None: ...

    old = await a_failed_job(store, a_job(name="greet"))
    await clock.advance(HOUR)
    assert await hold.dead_letters.archive() == 1
    await hold.dead_letters.restore(old.id)
    await hold.dead_letters.replay(await planned(hold, old.id), actor="ann")
    await move_plans(hold)
    new = await claimed(store)

    assert (new.id, new.generation) == (old.id, 2)
    assert new.token > old.token
    assert await store.settle("worker", [complete(old, '"late"')]) != [Settled.WRITTEN]


@pytest.mark.clause("DLQ-3")
async def test_arguments_that_a_codec_has_encoded_survive_the_archive(
    opening: Opening, store: Store, clock: DatabaseClock
) -> None:
    texts: list[str] = []
    async with opening(codec=Lock("k1")) as hold:

        @hold.job("mystery", attempts=1)
        async def mystery(text: str) -> str:
            texts.append(text)
            if len(texts) == 1:
                raise TimeoutError("slow")
            return text

        job_id = await failed(hold, mystery, "the butler did it")
        stored = (await store.get(job_id)).args
        await clock.advance(HOUR)
        assert await hold.dead_letters.archive() == 1
        await hold.dead_letters.restore(job_id)
        assert (await store.get(job_id)).args == stored
        assert "butler" not in stored
        token = await planned(hold, job_id)
        async with hold.worker(poll=0.05):
            await replayed(hold, clock, token)
        assert hold.load_result(await hold.read(job_id)) == "the butler did it"

    assert texts == ["the butler did it"] * 2


@pytest.mark.clause("OPS-2")
async def test_a_dry_run_says_so_when_a_letter_came_back_without_its_job(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    async with hold.worker(poll=0.05):
        [job_id] = await all_failed(hold, [await review.submit(7)])
        service.error = None
        await replayed(hold, clock, await planned(hold, job_id))
    await clock.advance(HOUR)
    assert await hold.dead_letters.archive() == 1
    assert await hold.runtime.store.retention.purge_finished(older_than=timedelta(minutes=1), limit=9) == 1
    assert await hold.dead_letters.restore(job_id) == ([job_id], {})

    refused = (await hold.dead_letters.plan(job_id, safe="keyed", actor="ann")).refused

    assert refused[job_id] == (
        "it is verified; cause and evidence come first; its job is gone, and nothing is left to replay"
    )


@pytest.mark.parametrize("spelled", ["{}", "urn:uuid:{}", "{{{}}}"])
async def test_a_letter_is_restored_by_its_jobs_id_however_that_is_spelled(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, spelled: str
) -> None:
    async with hold.worker(poll=0.05):
        [job_id] = await all_failed(hold, [await review.submit(7)])
    await clock.advance(HOUR)
    assert await hold.dead_letters.archive() == 1

    assert await hold.dead_letters.restore(spelled.format(job_id.upper())) == ([job_id], {})


@pytest.mark.clause("DLQ-3")
@pytest.mark.clause("OPS-2")
async def test_letters_that_left_together_come_back_together(
    hold: Holdfast, review: JobFunction[[int], int], folder: Path, logger: Logger
) -> None:
    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(6)])
    assert [await hold.dead_letters.archive(beyond=kept) for kept in (4, 2, 0)] == [2, 2, 2]
    damaged = sorted(folder.glob("*.gz"))[1]
    damaged.write_bytes(b"worms")
    lost = [each.letter.job_id for each in await hold.dead_letters.archived() if each.file == damaged.name]
    of_review = LetterFilter(name="review")

    look = await hold.dead_letters.restore(of_review, dry_run=True)
    assert (sorted(look.done + lost), await hold.dead_letters.list(ALL)) == (ids, [])
    first = await hold.dead_letters.restore(replace(of_review, limit=1))
    then = await hold.dead_letters.restore(of_review)

    assert sorted(first.done + then.done) == sorted(look.done)
    assert [len(moved.done) for moved in (first, then)] == [1, 3]
    assert sorted(then.refused) == sorted(lost)
    assert all("is damaged" in why for why in then.refused.values())
    assert {line["file"] for line in logger.lines("archive file not read")} == {damaged.name}
    with pytest.raises(ArchiveDamaged):
        await hold.dead_letters.restore(lost[0])
    assert await hold.dead_letters.restore(LetterFilter(name="another")) == ([], {})


async def test_what_the_archive_does_not_have_cannot_be_restored(hold: Holdfast, folder: Path) -> None:
    folder.mkdir()
    unknown = a_job().id
    with pytest.raises(LetterNotFound, match=f"the archive has no dead letter of job {unknown}"):
        await hold.dead_letters.restore(unknown)
    with pytest.raises(LetterNotFound, match="there is no dead letter of job '42'; a job's id is a UUID"):
        await hold.dead_letters.restore("42")
    with pytest.raises(ConfigError, match=r"nor a filter; name several jobs with LetterFilter\(job_ids=…\)"):
        await hold.dead_letters.restore(["42"])  # type: ignore[arg-type] # as a caller may who has several


async def test_an_archive_that_is_gone_is_not_taken_for_one_without_the_letter(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path
) -> None:
    job_id = await failed(hold, review, 1)
    await clock.advance(HOUR)
    assert await hold.dead_letters.archive() == 1
    mounted = folder.rename(folder.with_name("elsewhere"))

    for ask in (hold.dead_letters.archived, partial(hold.dead_letters.restore, job_id)):
        with pytest.raises(ArchiveUnavailable, match="check the path, and that its disk is mounted"):
            await ask()

    mounted.rename(folder)
    assert await hold.dead_letters.restore(job_id) == ([job_id], {})
