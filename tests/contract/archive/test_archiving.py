"""Letters leave for the archive before they are deleted, and none that is in use leaves."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from holdfast import Holdfast, JobFunction, Retention, Status
from holdfast.engine.dead_letters import archiver
from holdfast.errors import ConfigError, JobNotFound, LetterNotFound
from tests.contract.archive.conftest import DAY, HOUR, Opening, archived
from tests.contract.conftest import DatabaseClock, Logger
from tests.contract.letters import ALL, all_failed, failed, move_plans, planned, run_archiver, two_stages
from tests.contract.services import Service, down


@pytest.mark.clause("DLQ-3")
async def test_letters_leave_for_the_archive_when_their_time_is_over(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path, logger: Logger
) -> None:
    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(3)])
    await run_archiver(hold, clock)
    assert len(await hold.dead_letters.list(ALL)) == 3, "not before"

    await clock.advance(HOUR)
    await run_archiver(hold, clock)

    assert (await hold.dead_letters.list(ALL), sorted(archived(folder))) == ([], ids)
    assert [line["letters"] for line in logger.lines("dead letters archived")] == [3]
    for job_id in ids:
        with pytest.raises(JobNotFound):
            await hold.read(job_id)
        with pytest.raises(LetterNotFound):
            await hold.dead_letters.show(job_id)


@pytest.mark.clause("DLQ-3")
async def test_of_more_letters_than_are_kept_the_oldest_leave(
    opening: Opening, service: Service, clock: DatabaseClock, folder: Path
) -> None:
    service.error = down()
    few = Retention(most_letters=2, letters_a_day=None)
    async with opening(retention=few) as hold:
        review = two_stages(hold, Service(), service)
        ids = []
        for number in range(5):
            ids.append(await failed(hold, review, number))
            await clock.advance(timedelta(seconds=1))
        await run_archiver(hold, clock)

        left = sorted(letter.job_id for letter in await hold.dead_letters.list(ALL))

    assert (archived(folder), left) == (ids[:3], ids[3:])


@pytest.mark.clause("DLQ-3")
async def test_without_an_archive_no_letter_is_ever_deleted(
    opening: Opening, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    brief = Retention(letters=HOUR, most_letters=1, finished=HOUR, keys=HOUR)
    async with opening(archive=None, retention=brief) as hold:
        review = two_stages(hold, Service(), service)
        async with hold.worker(poll=0.05):
            ids = await all_failed(hold, [await review.submit(number) for number in range(3)])
        await clock.advance(DAY)
        await run_archiver(hold, clock)

        assert len(await hold.dead_letters.list(ALL)) == 3
        assert [(await hold.read(job_id)).status for job_id in ids] == [Status.FAILED] * 3
        for ask in (
            hold.dead_letters.archive,
            partial(hold.dead_letters.archive, dry_run=True),
            hold.dead_letters.archived,
        ):
            with pytest.raises(ConfigError, match=r"there is no archive; name a folder or a bucket"):
                await ask()


@pytest.mark.clause("DLQ-3")
async def test_an_operator_archives_all_that_is_due_and_one_turn_of_a_worker_a_few_batches(
    hold: Holdfast,
    review: JobFunction[[int], int],
    clock: DatabaseClock,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archiver, "BATCH", 1)
    monkeypatch.setattr(archiver, "MOST_BATCHES", 1)
    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(6)])
    await clock.advance(HOUR)
    await run_archiver(hold, clock)
    assert len(archived(folder)) == 2, "in two turns"

    assert (await hold.dead_letters.archive(dry_run=True), len(archived(folder))) == (4, 2)
    assert await hold.dead_letters.archive() == 4

    assert sorted(archived(folder)) == ids
    listed = await hold.dead_letters.archived()
    assert [each.letter.job_id for each in listed] == archived(folder)
    assert {each.letter.name for each in listed} == {"review"}
    assert {each.file for each in listed} == {file.name for file in folder.glob("*.gz")}


@pytest.mark.clause("DLQ-3")
async def test_nothing_leaves_that_is_being_replayed(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path
) -> None:
    async with hold.worker(poll=0.05):
        await all_failed(hold, [await review.submit(number) for number in range(3)])
    await hold.dead_letters.replay(await planned(hold), actor="ann")
    await move_plans(hold)  # one is under way, two will follow it

    await clock.advance(DAY)
    await run_archiver(hold, clock)

    assert (await hold.dead_letters.archive(older_than="1s"), await hold.dead_letters.archive(beyond=1)) == (
        0,
        0,
    )
    assert archived(folder) == []
    assert len(await hold.dead_letters.list(ALL)) == 3
