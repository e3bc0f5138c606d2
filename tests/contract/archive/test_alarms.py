"""An archive that fails deletes nothing and raises one ticket, as does a day with too many letters."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, JobFunction, Retention
from holdfast.engine.options import LetterOptions
from holdfast.errors import ArchiveMissing, JobNotFound
from holdfast.operations import LetterState, Ticket, TicketKind
from tests.contract.archive.conftest import DAY, HOUR, KEPT, Opening, archived
from tests.contract.conftest import DatabaseClock, Logger
from tests.contract.letters import all_failed, failed, letter_of, notify_tickets, run_archiver, two_stages
from tests.contract.services import Service, down
from tests.contract.steps import TIMEOUT


@pytest.mark.clause("DLQ-3")
async def test_if_the_archive_fails_nothing_is_deleted_and_one_ticket_is_raised(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path
) -> None:
    received: list[Ticket] = []
    hold.on_ticket(received.append)
    folder.write_text("not a folder")
    job_id = await failed(hold, review, 1)
    await clock.advance(HOUR)
    for _ in range(3):
        await run_archiver(hold, clock)
        await notify_tickets(hold)

    assert (await letter_of(hold, job_id)).state is LetterState.NEW
    [alarm] = [ticket for ticket in received if ticket.kind is TicketKind.ARCHIVE]
    assert (alarm.level, alarm.job_id) == ("alert", None)
    assert alarm.title.startswith("dead letters cannot be archived, and are kept: ")

    folder.unlink()
    await run_archiver(hold, clock)
    assert archived(folder) == [job_id]
    other = await failed(hold, review, 2)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("not a folder again")
    await clock.advance(HOUR)
    await run_archiver(hold, clock)
    await notify_tickets(hold)
    assert (await letter_of(hold, other)).state is LetterState.NEW
    assert sum(ticket.kind is TicketKind.ARCHIVE for ticket in received) == 2, "once for each time"


class KeepsNothing:
    """An archive that takes everything, and keeps nothing."""

    async def put(self, name: str, data: bytes) -> None: ...

    async def get(self, name: str, *, at_most: int) -> bytes:
        raise ArchiveMissing(f"the archive has no {name!r}")

    async def names(self) -> list[str]:
        return []


@pytest.mark.clause("DLQ-3")
@pytest.mark.parametrize(
    "broken", [{"archive": KeepsNothing()}, {"encrypter_of": LetterOptions().encrypter_of}]
)
async def test_what_was_not_read_back_or_cannot_be_encrypted_counts_as_not_archived(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, broken: dict[str, Any]
) -> None:
    received: list[Ticket] = []
    hold.on_ticket(received.append)
    job_id = await failed(hold, review, 1)
    await clock.advance(HOUR)
    hold.runtime = replace(hold.runtime, letters=replace(hold.runtime.letters, **broken))
    hold._make_services(hold.runtime)

    await run_archiver(hold, clock)
    await notify_tickets(hold)

    assert (await letter_of(hold, job_id)).state is LetterState.NEW
    assert [ticket.kind for ticket in received] == [TicketKind.ARCHIVE, TicketKind.DEAD_LETTER]


class RaisesAnotherError(KeepsNothing):
    """An archive of another author, which raises an error that is not expected."""

    async def put(self, name: str, data: bytes) -> None:
        raise PermissionError("token of ann@example.org has expired")


@pytest.mark.clause("DLQ-3")
async def test_whatever_an_archive_raises_is_reported_and_keeps_nothing_else_from_being_deleted(
    opening: Opening, service: Service, clock: DatabaseClock, logger: Logger
) -> None:
    received: list[Ticket] = []
    async with opening(retention=replace(KEPT, finished=HOUR)) as hold:
        hold.on_ticket(received.append)
        review = two_stages(hold, Service(), service)
        async with hold.worker(poll=0.05):
            finished = await review.submit(1)
            await finished.result(timeout=TIMEOUT)
        service.error = down()
        job_id = await failed(hold, review, 2)
        await clock.advance(HOUR)
        hold.runtime = replace(
            hold.runtime, letters=replace(hold.runtime.letters, archive=RaisesAnotherError())
        )
        hold._make_services(hold.runtime)

        await run_archiver(hold, clock)
        await notify_tickets(hold)

        assert (await letter_of(hold, job_id)).state is LetterState.NEW
        with pytest.raises(JobNotFound):
            await finished.read()
        [alarm] = [ticket for ticket in received if ticket.kind is TicketKind.ARCHIVE]
        assert alarm.title.startswith("dead letters cannot be archived, and are kept: token of [email:")
        assert {line["letters"] for line in logger.lines("archive failed")} == {1}
        with pytest.raises(PermissionError):
            await hold.dead_letters.archive()


@pytest.mark.clause("DLQ-3")
async def test_the_alarm_is_over_when_letters_were_archived_or_none_has_had_its_time(
    hold: Holdfast, review: JobFunction[[int], int], clock: DatabaseClock, folder: Path
) -> None:
    received: list[Ticket] = []
    hold.on_ticket(received.append)

    async def alarms_after_another_turn() -> int:
        await run_archiver(hold, clock)
        await notify_tickets(hold)
        return sum(ticket.kind is TicketKind.ARCHIVE for ticket in received)

    folder.write_text("not a folder")
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
async def test_a_day_with_too_many_letters_is_reported_once(
    opening: Opening, service: Service, clock: DatabaseClock
) -> None:
    received: list[Ticket] = []
    service.error = down()
    at_most_two = Retention(letters_a_day=2, letters=None)
    async with opening(retention=at_most_two) as hold:
        hold.on_ticket(received.append)
        review = two_stages(hold, Service(), service)

        async def alarms_after(failures: int) -> list[str]:
            async with hold.worker(poll=0.05):
                await all_failed(hold, [await review.submit(number) for number in range(failures)])
            await run_archiver(hold, clock)
            await notify_tickets(hold)
            return [ticket.title for ticket in received if ticket.kind is TicketKind.MANY]

        assert await alarms_after(2) == []
        [title] = await alarms_after(1)
        assert title == "3 jobs have failed within a day, more than 2"
        assert await alarms_after(1) == [title]
        await clock.advance(DAY)
        assert await alarms_after(0) == [title], "it is over"
        assert await alarms_after(3) == [title, title]
