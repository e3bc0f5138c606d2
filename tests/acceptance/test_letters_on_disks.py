"""Dead letters leave for the archive whole, or stay: beyond their limit, on a full disk, and under `kill -9`."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import (
    ArchiveUnavailable,
    Holdfast,
    JobNotFound,
    LetterFilter,
    LetterState,
    Permanent,
    Retention,
    Status,
    TicketKind,
)
from holdfast.core.dead_letters.archive_format import RECORDS, is_manifest, manifest_name, unpack
from holdfast.engine.dead_letters.archiver import BATCH, EVERY, SCHEDULE
from holdfast.engine.dead_letters.restorer import Restorer
from tests import invariants
from tests.acceptance.harness.replays import InvoiceCrew

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from holdfast import JobFunction, Ticket
    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.disks import SmallDisk
    from tests.invariants import World

LIMIT = 10_000
"""How many letters are kept unless somebody says otherwise."""

SLOTS = 200
AT_ONCE = 8
ALL = LetterFilter(limit=2 * LIMIT)


@dataclass
class Desk:
    """A job that fails as long as it is *broken*, and who hears of it."""

    hold: Holdfast
    note: JobFunction[[int], int]
    broken: asyncio.Event
    tickets: list[Ticket] = field(default_factory=list)

    async def bury(self, count: int) -> list[str]:
        """Have so many jobs fail, and give their ids; a worker has to be there."""
        handles = await self.note.submit_many((number,) for number in range(count))

        async def none_is_live() -> bool:
            return not await self.hold.runtime.store.queues.depths()

        await soon(none_is_live, f"{count} jobs to fail", within=120)
        return [handle.id for handle in handles]

    async def letters(self) -> set[str]:
        """Name the jobs that have a letter."""
        return {letter.job_id for letter in await self.hold.dead.list(ALL)}

    def told_of(self, kind: TicketKind) -> int:
        """Count the tickets of one kind that were told."""
        return sum(ticket.kind is kind for ticket in self.tickets)

    async def repaired(self, job_id: str) -> LetterState:
        """Take one letter the whole way back, and tell where it got to."""
        dead = self.hold.dead
        await dead.triage(job_id, "code", actor="ann")
        await dead.remediate(job_id, "mended", actor="ann")
        planned = await dead.plan(job_id, safe="it calls nobody", actor="ann")
        assert planned.token is not None, planned.refused
        await dead.replay(planned.token, actor="ann")

        async def verified() -> bool:
            return (await dead.show(job_id)).letter.state is LetterState.VERIFIED

        await soon(verified, "the replayed job to complete")
        return (await dead.show(job_id)).letter.state


@asynccontextmanager
async def a_desk(url: str, archive: Path, **retention: Any) -> AsyncIterator[Desk]:
    hold, broken = Holdfast(url, archive=str(archive), retention=Retention(**retention)), asyncio.Event()
    broken.set()

    @hold.job("note")
    async def note(number: int) -> int:
        if broken.is_set():
            raise Permanent("this goes nowhere")
        return number

    desk = Desk(hold, note, broken)
    hold.on_ticket(desk.tickets.append)
    async with hold:
        yield desk


async def give_the_turn(hold: Holdfast) -> None:
    """Let the next archivist who looks have its turn: the last one was a while ago."""
    store = hold.runtime.store
    await store.schedules.begin([SCHEDULE])
    now, marks = await store.schedules.marks([SCHEDULE])
    assert await store.schedules.advance(SCHEDULE, marks[SCHEDULE], now - 2 * EVERY, [])


async def soon(condition: Callable[[], Any], what: str, *, within: float = 60.0) -> None:
    """Wait for *condition*."""
    async with asyncio.timeout(within):
        while not await condition():
            await asyncio.sleep(0.1)


@pytest.mark.clause("DLQ-3")
async def test_the_10_001st_letter_sends_the_oldest_into_the_archive_from_where_it_comes_back(
    database: Database, tmp_path: Path
) -> None:
    async with a_desk(database.url, tmp_path / "archive") as desk:
        hold = desk.hold
        async with hold.worker(slots=SLOTS):
            [oldest] = await desk.bury(1)
            others = set(await desk.bury(LIMIT))
        await give_the_turn(hold)
        async with hold.worker(slots=SLOTS):

            async def archived() -> bool:
                return oldest not in await desk.letters()

            await soon(archived, "the archivist's turn")
            assert await desk.letters() == others
            assert len(others) == LIMIT
            with pytest.raises(JobNotFound):
                await hold.read(oldest)

            assert await hold.dead.restore(oldest) == ([oldest], {})
            assert (await hold.read(oldest)).status is Status.FAILED
            desk.broken.clear()
            assert await desk.repaired(oldest) is LetterState.VERIFIED

        assert (await hold.read(oldest)).result == "0"


@pytest.mark.clause("DLQ-3")
async def test_a_full_disk_deletes_no_letter_is_told_once_and_stops_nothing_else(
    database: Database, small_disk: SmallDisk
) -> None:
    archive = small_disk.folder / "archive"
    async with a_desk(database.url, archive, most_letters=1, letters_a_day=None) as desk:
        hold = desk.hold
        async with hold.worker():
            buried = set(await desk.bury(5))
        small_disk.fill()
        await give_the_turn(hold)
        async with hold.worker():

            async def alarmed() -> bool:
                return desk.told_of(TicketKind.ARCHIVE) > 0

            await soon(alarmed, "the ticket about the archive")
            with pytest.raises(ArchiveUnavailable, match="is full"):
                await hold.dead.archive()
            buried |= set(await desk.bury(1))
            await soon(_all_told(desk, len(buried)), "the tickets of all letters")
            assert await desk.letters() == buried
            assert desk.told_of(TicketKind.ARCHIVE) == 1

            desk.broken.clear()
            assert await (await desk.note.submit(7)).result(timeout=30) == 7
            desk.broken.set()

            small_disk.free()
            assert await hold.dead.archive() == len(buried) - 1
            assert len(await desk.letters()) == 1
            assert await manifests_hold(hold) == buried - await desk.letters()

            small_disk.fill()
            await desk.bury(1)
            with pytest.raises(ArchiveUnavailable, match="is full"):
                await hold.dead.archive()
            await soon(_told_again(desk), "a second ticket: the first alarm was over")
        small_disk.free()


def _all_told(desk: Desk, letters: int) -> Callable[[], Any]:
    async def all_told() -> bool:
        return desk.told_of(TicketKind.DEAD_LETTER) >= letters

    return all_told


def _told_again(desk: Desk) -> Callable[[], Any]:
    async def told_again() -> bool:
        return desk.told_of(TicketKind.ARCHIVE) == 2

    return told_again


@pytest.mark.clause("DLQ-3")
async def test_kill_9_in_the_middle_of_archiving_loses_no_letter(database: Database, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    async with a_desk(database.url, archive) as desk:
        async with desk.hold.worker(slots=SLOTS):
            buried = set(await desk.bury(4 * BATCH + 1))
        before = await invariants.read_world(database.url)

        for moment in (a_part_is_there, records_have_no_manifest, a_manifest_is_there):
            await give_the_turn(desk.hold)
            await asyncio.to_thread(kill_an_archivist, database, archive, tmp_path, when=moment)
            assert await desk.letters() | await manifests_hold(desk.hold) == buried

        await desk.hold.dead.archive(beyond=1)
        kept = await desk.letters()
        assert (len(kept), await manifests_hold(desk.hold) >= buried - kept) == (1, True)
        assert await restored(desk.hold, sorted(buried - kept)) == buried - kept

        assert await desk.letters() == buried
        assert rows_of(await invariants.read_world(database.url)) == rows_of(before)


def a_part_is_there(names: Sequence[str]) -> bool:
    """A file is being written."""
    return any(name.startswith(".") for name in names)


def records_have_no_manifest(names: Sequence[str]) -> bool:
    """A file of records was written, and is being read back."""
    records = [name for name in names if name.endswith(RECORDS)]
    return any(manifest_name(name) not in names for name in records)


def a_manifest_is_there(names: Sequence[str]) -> bool:
    """All of a batch was written, and little or nothing of it is deleted yet."""
    return any(map(is_manifest, names))


def kill_an_archivist(
    database: Database, archive: Path, folder: Path, *, when: Callable[[Sequence[str]], bool]
) -> None:
    """Start a worker whose turn it is, and kill it at that moment."""
    environment = {"HOLDFAST_ARCHIVE_URL": str(archive), "HOLDFAST_DEAD_LETTER_LIMIT": "1"}
    before = set(_names(archive))
    with InvoiceCrew(database.url, folder, size=1, environment=environment) as crew:
        [worker] = crew.members
        give_up_at = time.monotonic() + 60
        while not when([name for name in _names(archive) if name not in before]):
            # The moments are too short for pauses in between.
            assert worker.alive, worker.said()[-2000:]
            assert time.monotonic() < give_up_at, worker.said()[-2000:]
        worker.kill()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


async def manifests_hold(hold: Holdfast) -> set[str]:
    """Name the jobs whose letters the archive holds, each in a file that is whole."""
    restorer, archive = Restorer(hold.runtime), hold.runtime.letters.archive
    assert archive is not None
    held: set[str] = set()
    for manifest in await restorer.manifests():
        unpack(await archive.get(manifest.name, at_most=manifest.bytes), manifest)
        held |= {entry.job_id for entry in manifest.letters}
    return held


async def restored(hold: Holdfast, job_ids: Sequence[str]) -> set[str]:
    """Bring letters back, several people at once."""
    shares = [LetterFilter(job_ids=tuple(job_ids[start::AT_ONCE])) for start in range(AT_ONCE)]
    moved = await asyncio.gather(*map(hold.dead.restore, shares))
    return {job_id for share in moved for job_id in share.done}


def rows_of(world: World) -> Counter[tuple[str, ...]]:
    """Give all rows, in whatever order they are; a history keeps its order, and not its numbers."""
    return Counter(
        (part, *(f"{name}={value}" for name, value in sorted(row.items()) if name != "seq"))
        for part, rows in vars(world).items()
        for row in rows
    )
