"""Letters leave for the archive before they are deleted, come back whole, and what nobody needs is deleted."""

import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, JobFunction, Retention, Status
from holdfast.core.jobs.transitions import complete
from holdfast.engine.dead_letters import archiver
from holdfast.engine.options import LetterOptions
from holdfast.errors import (
    ArchiveDamaged,
    ArchiveMissing,
    ArchiveUnavailable,
    ConfigError,
    JobNotFound,
    LetterNotFound,
    StepRefused,
)
from holdfast.operations import LetterFilter, LetterState, Ticket, TicketKind
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.builders import a_job
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import (
    ALL,
    all_failed,
    failed,
    keep_house,
    letter_of,
    move_plans,
    opened,
    planned,
    replayed,
    tell_tickets,
    two_stages,
)
from tests.contract.services import Service, down
from tests.contract.steps import PATIENCE, a_failed_job, claimed
from tests.contract.test_codec import Lock

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEPT = Retention(letters=HOUR, most_letters=None, letters_a_day=None, finished=None, keys=None)

Opening = Callable[..., AbstractAsyncContextManager[Holdfast]]

OLD_KEY, NEW_KEY = "an old key of thirty-two characters", "a new key of thirty-two characters"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def opening(database: Database, logger: Logger, folder: Path) -> Opening:
    """Opens a Holdfast with an archive, which keeps letters for an hour unless it is told otherwise."""
    return partial(opened, database, logger, archive=str(folder), retention=KEPT)


@pytest.fixture
async def hold(opening: Opening) -> AsyncIterator[Holdfast]:
    async with opening() as made:
        yield made


def opening_with(
    opening: Opening, keys: str | None, monkeypatch: pytest.MonkeyPatch
) -> AbstractAsyncContextManager[Holdfast]:
    """Open a Holdfast whose environment has these keys for the archive, or none."""
    if keys is None:
        monkeypatch.delenv("HOLDFAST_ARCHIVE_KEY", raising=False)
    else:
        monkeypatch.setenv("HOLDFAST_ARCHIVE_KEY", keys)
    return opening()


def slow(hold: Holdfast) -> JobFunction[[str], None]:
    @hold.job("essay", attempts=1)
    async def essay(text: str) -> None:
        raise TimeoutError("slow")

    return essay


def archived(folder: Path) -> list[str]:
    """Name the jobs whose letters are in the archive, the oldest first."""
    manifests = [json.loads(file.read_bytes()) for file in sorted(folder.glob("*.manifest.json"))]
    return [letter["job_id"] for manifest in manifests for letter in manifest["letters"]]


def records(folder: Path) -> str:
    return "".join(gzip.decompress(file.read_bytes()).decode() for file in sorted(folder.glob("*.gz")))


@pytest.fixture
def fetched() -> Service:
    return Service()


@pytest.fixture
def review(hold: Holdfast, fetched: Service, service: Service) -> JobFunction[[int], int]:
    """A job whose service is down."""
    service.error = down()
    return two_stages(hold, fetched, service)


@pytest.mark.clause("DLQ-3")
async def test_letters_leave_for_the_archive_when_their_time_is_over(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path, logger: Logger
) -> None:
    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(3)])
    await keep_house(hold, clock)
    assert len(await hold.dead_letters.list(ALL)) == 3, "not before"

    await clock.advance(HOUR)
    await keep_house(hold, clock)

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
        await keep_house(hold, clock)

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
        await keep_house(hold, clock)

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
async def test_a_person_archives_all_that_is_due_and_a_turn_so_many(
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
    await keep_house(hold, clock)
    assert len(archived(folder)) == 2, "in two turns"

    assert (await hold.dead_letters.archive(dry_run=True), len(archived(folder))) == (4, 2)
    assert await hold.dead_letters.archive() == 4

    assert sorted(archived(folder)) == ids
    listed = await hold.dead_letters.archived()
    assert [each.letter.job_id for each in listed] == archived(folder)
    assert {each.letter.name for each in listed} == {"review"}
    assert {each.file for each in listed} == {file.name for file in folder.glob("*.gz")}


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
async def test_nothing_leaves_that_is_being_replayed(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path
) -> None:
    async with hold.worker(poll=0.05):
        await all_failed(hold, [await review.submit(number) for number in range(3)])
    await hold.dead_letters.replay(await planned(hold), actor="ann")
    await move_plans(hold)  # one is under way, two will follow it

    await clock.advance(DAY)
    await keep_house(hold, clock)

    assert (await hold.dead_letters.archive(older_than="1s"), await hold.dead_letters.archive(beyond=1)) == (
        0,
        0,
    )
    assert archived(folder) == []
    assert len(await hold.dead_letters.list(ALL)) == 3


@pytest.mark.clause("DLQ-3")
async def test_if_the_archive_fails_nothing_is_deleted_and_somebody_hears_of_it_once(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path
) -> None:
    told: list[Ticket] = []
    hold.on_ticket(told.append)
    folder.write_text("in the way")
    job_id = await failed(hold, review, 1)
    await clock.advance(HOUR)
    for _ in range(3):
        await keep_house(hold, clock)
        await tell_tickets(hold)

    assert (await letter_of(hold, job_id)).state is LetterState.NEW
    [alarm] = [ticket for ticket in told if ticket.kind is TicketKind.ARCHIVE]
    assert (alarm.level, alarm.job_id) == ("alert", None)
    assert alarm.title.startswith("dead letters cannot be archived, and are kept: ")

    folder.unlink()
    await keep_house(hold, clock)
    assert archived(folder) == [job_id]
    other = await failed(hold, review, 2)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("in the way again")
    await clock.advance(HOUR)
    await keep_house(hold, clock)
    await tell_tickets(hold)
    assert (await letter_of(hold, other)).state is LetterState.NEW
    assert sum(ticket.kind is TicketKind.ARCHIVE for ticket in told) == 2, "once for each time"


class Sieve:
    """An archive that takes everything, and keeps nothing."""

    async def put(self, name: str, data: bytes) -> None: ...

    async def get(self, name: str, *, at_most: int) -> bytes:
        raise ArchiveMissing(f"the archive has no {name!r}")

    async def names(self) -> list[str]:
        return []


@pytest.mark.clause("DLQ-3")
@pytest.mark.parametrize("broken", [{"archive": Sieve()}, {"encrypter_of": LetterOptions().encrypter_of}])
async def test_what_was_not_read_back_or_cannot_be_sealed_counts_as_not_archived(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, broken: dict[str, Any]
) -> None:
    told: list[Ticket] = []
    hold.on_ticket(told.append)
    job_id = await failed(hold, review, 1)
    await clock.advance(HOUR)
    hold.runtime = replace(hold.runtime, letters=replace(hold.runtime.letters, **broken))
    hold._make_services(hold.runtime)

    await keep_house(hold, clock)
    await tell_tickets(hold)

    assert (await letter_of(hold, job_id)).state is LetterState.NEW
    assert [ticket.kind for ticket in told] == [TicketKind.ARCHIVE, TicketKind.DEAD_LETTER]


class Odd(Sieve):
    """An archive that somebody else wrote, and that raises what nobody expects."""

    async def put(self, name: str, data: bytes) -> None:
        raise PermissionError("token of ann@example.org has expired")


@pytest.mark.clause("DLQ-3")
async def test_whatever_an_archive_raises_is_told_and_keeps_nothing_else_from_leaving(
    opening: Opening, service: Service, clock: DatabaseClock, logger: Logger
) -> None:
    told: list[Ticket] = []
    async with opening(retention=replace(KEPT, finished=HOUR)) as hold:
        hold.on_ticket(told.append)
        review = two_stages(hold, Service(), service)
        async with hold.worker(poll=0.05):
            finished = await review.submit(1)
            await finished.result(timeout=PATIENCE)
        service.error = down()
        job_id = await failed(hold, review, 2)
        await clock.advance(HOUR)
        hold.runtime = replace(hold.runtime, letters=replace(hold.runtime.letters, archive=Odd()))
        hold._make_services(hold.runtime)

        await keep_house(hold, clock)
        await tell_tickets(hold)

        assert (await letter_of(hold, job_id)).state is LetterState.NEW
        with pytest.raises(JobNotFound):
            await finished.read()
        [alarm] = [ticket for ticket in told if ticket.kind is TicketKind.ARCHIVE]
        assert alarm.title.startswith("dead letters cannot be archived, and are kept: token of [email:")
        assert {line["letters"] for line in logger.lines("archive failed")} == {1}
        with pytest.raises(PermissionError):
            await hold.dead_letters.archive()


@pytest.mark.clause("DLQ-3")
async def test_the_alarm_is_over_when_letters_were_archived_or_none_has_had_its_time(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path
) -> None:
    told: list[Ticket] = []
    hold.on_ticket(told.append)

    async def alarms_after_another_turn() -> int:
        await keep_house(hold, clock)
        await tell_tickets(hold)
        return sum(ticket.kind is TicketKind.ARCHIVE for ticket in told)

    folder.write_text("in the way")
    job_id = await failed(hold, review, 1)
    await clock.advance(HOUR)
    assert await alarms_after_another_turn() == 1

    assert await hold.dead_letters.archive(older_than="1000d") == 0
    assert await alarms_after_another_turn() == 1, "it has not been tried"

    async with hold.worker(poll=0.05):
        await hold.retry(job_id)
        await all_failed(hold, [hold.handle(job_id)])
    assert await alarms_after_another_turn() == 1, "no letter is old enough"
    await clock.advance(HOUR)
    assert await alarms_after_another_turn() == 2, "so that was over"


@pytest.mark.clause("DLQ-3")
async def test_a_day_with_too_many_letters_is_told_of_once(
    opening: Opening, service: Service, clock: DatabaseClock
) -> None:
    told: list[Ticket] = []
    service.error = down()
    usual = Retention(letters_a_day=2, letters=None)
    async with opening(retention=usual) as hold:
        hold.on_ticket(told.append)
        review = two_stages(hold, Service(), service)

        async def alarms_after(failures: int) -> list[str]:
            async with hold.worker(poll=0.05):
                await all_failed(hold, [await review.submit(number) for number in range(failures)])
            await keep_house(hold, clock)
            await tell_tickets(hold)
            return [ticket.title for ticket in told if ticket.kind is TicketKind.MANY]

        assert await alarms_after(2) == []
        [title] = await alarms_after(1)
        assert title == "3 jobs have failed within a day, more than 2"
        assert await alarms_after(1) == [title]
        await clock.advance(DAY)
        assert await alarms_after(0) == [title], "it is over"
        assert await alarms_after(3) == [title, title]


@pytest.mark.clause("DLQ-3")
async def test_what_is_archived_cannot_be_read_without_the_key(
    hold: Holdfast, clock: DatabaseClock, folder: Path
) -> None:
    job_id = await failed(hold, slow(hold), "once upon a midnight dreary")
    await clock.advance(HOUR)
    assert await hold.dead_letters.archive() == 1

    stored = records(folder)
    assert (job_id in stored, "midnight" in stored) == (True, False)
    await hold.dead_letters.restore(job_id)
    assert json.loads((await hold.read(job_id)).args) == {"text": "once upon a midnight dreary"}


@pytest.mark.parametrize("before", [OLD_KEY, None])
async def test_a_new_key_seals_and_what_was_sealed_before_opens_behind_it(
    opening: Opening, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    async with opening_with(opening, before, monkeypatch) as hold:
        old = await failed(hold, slow(hold), "once upon a midnight dreary")
        await clock.advance(HOUR)
        await hold.dead_letters.archive()

    keys = NEW_KEY if before is None else f"{NEW_KEY}, {before}"
    async with opening_with(opening, keys, monkeypatch) as hold:
        new = await failed(hold, slow(hold), "while I nodded, nearly napping")
        await clock.advance(HOUR)
        await hold.dead_letters.archive()
        await hold.dead_letters.restore(old)
    async with opening_with(opening, NEW_KEY, monkeypatch) as hold:
        await hold.dead_letters.restore(new)
        texts = [json.loads((await hold.read(job_id)).args)["text"] for job_id in (old, new)]

    assert texts == ["once upon a midnight dreary", "while I nodded, nearly napping"]


async def test_what_was_sealed_with_a_key_that_is_not_given_does_not_open(
    opening: Opening, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opening_with(opening, OLD_KEY, monkeypatch) as hold:
        job_id = await failed(hold, slow(hold), "once upon a midnight dreary")
        await clock.advance(HOUR)
        await hold.dead_letters.archive()

    async with opening_with(opening, NEW_KEY, monkeypatch) as hold:
        with pytest.raises(
            ArchiveDamaged, match="give the key that it was encrypted with, after the present one"
        ):
            await hold.dead_letters.restore(job_id)


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
        await hold.dead_letters.restore(["42"])  # type: ignore[arg-type] # as somebody may who has several


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
