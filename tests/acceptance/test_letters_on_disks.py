"""Dead letters leave for the archive whole, or stay: beyond their limit, on a full disk, and under `kill -9`."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Permanent, Retention, Status
from holdfast.core.dead_letters.archive_format import RECORDS, is_manifest, manifest_name, unpack
from holdfast.core.jobs.transitions import Finish
from holdfast.engine.dead_letters.archiver import BATCH, EVERY, SCHEDULE
from holdfast.engine.dead_letters.restorer import Restorer
from holdfast.errors import ArchiveUnavailable, JobNotFound
from holdfast.operations import LetterFilter, LetterState, TicketKind
from holdfast.ports.store import Settled
from tests import invariants
from tests.acceptance.harness.replays import InvoicePool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from holdfast import JobFunction
    from holdfast.operations import Ticket
    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.disks import SmallDisk
    from tests.invariants import World

LIMIT = 10_000
"""How many letters are kept by default."""

AT_ONCE = 8
ALL = LetterFilter(limit=2 * LIMIT)


@dataclass
class DeadLetterApp:
    """A job that fails as long as *broken* is set, and the tickets that were delivered."""

    hold: Holdfast
    note: JobFunction[[int], int]
    broken: asyncio.Event
    tickets: list[Ticket] = field(default_factory=list)

    async def fail_jobs(self, count: int) -> list[str]:
        """Have *count* jobs fail, and return their ids; a worker has to run."""
        handles = await self.note.submit_many((number,) for number in range(count))

        async def none_is_live() -> bool:
            return not await self.hold.runtime.store.queues.depths()

        await soon(none_is_live, f"{count} jobs to fail", within=120)
        return [handle.id for handle in handles]

    async def fail_many(self, count: int) -> list[str]:
        """Write the failures of *count* jobs as a worker does, many at once, and return their ids."""
        async with self.hold.worker():
            [example] = await self.fail_jobs(1)
        store, failure = self.hold.runtime.store, (await self.hold.dead_letters.show(example)).letter.failure
        handles = await self.note.submit_many((number,) for number in range(1, count))
        while claims := await store.claim("many", "default", limit=BATCH, lease=timedelta(minutes=5)):
            ends = [Finish(claim.id, claim.token, Status.FAILED, failure=failure) for claim in claims]
            assert await store.settle("many", ends) == [Settled.WRITTEN] * len(ends)
        return [example, *(handle.id for handle in handles)]

    async def has_letter(self, job_id: str) -> bool:
        """Return whether a job has a letter, without reading all of them."""
        return bool(await self.hold.dead_letters.list(LetterFilter(job_ids=(job_id,), limit=1)))

    async def letters(self) -> set[str]:
        """Return the ids of the jobs that have a letter."""
        return {letter.job_id for letter in await self.hold.dead_letters.list(ALL)}

    def tickets_of(self, kind: TicketKind) -> int:
        """Count the delivered tickets of one kind."""
        return sum(ticket.kind is kind for ticket in self.tickets)

    async def repaired(self, job_id: str) -> LetterState:
        """Triage, remediate and replay one letter; return its final state."""
        dead = self.hold.dead_letters
        await dead.triage(job_id, "code", actor="ann")
        await dead.remediate(job_id, "fixed", actor="ann")
        planned = await dead.plan(job_id, safe="it calls no service", actor="ann")
        assert planned.token is not None, planned.refused
        await dead.replay(planned.token, actor="ann")

        async def verified() -> bool:
            return (await dead.show(job_id)).letter.state is LetterState.VERIFIED

        await soon(verified, "the replayed job to complete")
        return (await dead.show(job_id)).letter.state


@asynccontextmanager
async def a_dead_letter_app(url: str, archive: Path, **retention: Any) -> AsyncIterator[DeadLetterApp]:
    hold, broken = Holdfast(url, archive=str(archive), retention=Retention(**retention)), asyncio.Event()
    broken.set()

    @hold.job("note")
    async def note(number: int) -> int:
        if broken.is_set():
            raise Permanent("this goes nowhere")
        return number

    app = DeadLetterApp(hold, note, broken)
    hold.on_ticket(app.tickets.append)
    async with hold:
        yield app


async def make_archiving_due(hold: Holdfast) -> None:
    """Make an archiver run due: the last one was `2 * EVERY` ago."""
    store = hold.runtime.store
    await store.schedules.begin([SCHEDULE])
    now, last_ticks = await store.schedules.last_ticks([SCHEDULE])
    assert await store.schedules.advance(SCHEDULE, last_ticks[SCHEDULE], now - 2 * EVERY, [])


async def soon(condition: Callable[[], Any], what: str, *, within: float = 60.0) -> None:
    """Wait for *condition*."""
    async with asyncio.timeout(within):
        while not await condition():
            await asyncio.sleep(0.1)


@pytest.mark.clause("DLQ-3")
async def test_the_10_001st_letter_sends_the_oldest_into_the_archive_from_where_it_comes_back(
    database: Database, tmp_path: Path
) -> None:
    async with a_dead_letter_app(database.url, tmp_path / "archive") as app:
        hold = app.hold
        oldest, *rest = await app.fail_many(1 + LIMIT)
        others = set(rest)
        await make_archiving_due(hold)
        async with hold.worker():

            async def archived() -> bool:
                return not await app.has_letter(oldest)

            await soon(archived, "the archiver to run")
            assert await app.letters() == others
            assert len(others) == LIMIT
            with pytest.raises(JobNotFound):
                await hold.read(oldest)

            assert await hold.dead_letters.restore(oldest) == ([oldest], {})
            assert (await hold.read(oldest)).status is Status.FAILED
            app.broken.clear()
            assert await app.repaired(oldest) is LetterState.VERIFIED

        assert (await hold.read(oldest)).result == "0"


@pytest.mark.clause("DLQ-3")
async def test_a_full_disk_deletes_no_letter_is_reported_once_and_stops_nothing_else(
    database: Database, small_disk: SmallDisk
) -> None:
    archive = small_disk.folder / "archive"
    async with a_dead_letter_app(database.url, archive, most_letters=1, letters_a_day=None) as app:
        hold = app.hold
        async with hold.worker():
            failed = set(await app.fail_jobs(5))
        small_disk.fill()
        await make_archiving_due(hold)
        async with hold.worker():

            async def alarmed() -> bool:
                return app.tickets_of(TicketKind.ARCHIVE) > 0

            await soon(alarmed, "the ticket about the archive")
            with pytest.raises(ArchiveUnavailable, match="is full"):
                await hold.dead_letters.archive()
            failed |= set(await app.fail_jobs(1))
            await soon(_all_notified(app, len(failed)), "the tickets of all letters")
            assert await app.letters() == failed
            assert app.tickets_of(TicketKind.ARCHIVE) == 1

            app.broken.clear()
            assert await (await app.note.submit(7)).result(timeout=30) == 7
            app.broken.set()

            small_disk.free()
            assert await hold.dead_letters.archive() == len(failed) - 1
            assert len(await app.letters()) == 1
            assert await manifests_hold(hold) == failed - await app.letters()

            small_disk.fill()
            await app.fail_jobs(1)
            with pytest.raises(ArchiveUnavailable, match="is full"):
                await hold.dead_letters.archive()
            await soon(_notified_again(app), "a second ticket: the first alarm was over")
        small_disk.free()


def _all_notified(app: DeadLetterApp, letters: int) -> Callable[[], Any]:
    async def all_notified() -> bool:
        return app.tickets_of(TicketKind.DEAD_LETTER) >= letters

    return all_notified


def _notified_again(app: DeadLetterApp) -> Callable[[], Any]:
    async def notified_again() -> bool:
        return app.tickets_of(TicketKind.ARCHIVE) == 2

    return notified_again


@pytest.mark.clause("DLQ-3")
async def test_kill_9_in_the_middle_of_archiving_loses_no_letter(database: Database, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    async with a_dead_letter_app(database.url, archive) as app:
        failed = set(await app.fail_many(4 * BATCH + 1))
        before = await invariants.read_world(database.url)

        for moment in (a_partial_file_exists, records_have_no_manifest, a_manifest_exists):
            await make_archiving_due(app.hold)
            await asyncio.to_thread(kill_an_archiver, database, archive, tmp_path, when=moment)
            assert await app.letters() | await manifests_hold(app.hold) == failed

        await app.hold.dead_letters.archive(beyond=1)
        kept = await app.letters()
        assert (len(kept), await manifests_hold(app.hold) >= failed - kept) == (1, True)
        assert await restored(app.hold, sorted(failed - kept)) == failed - kept

        assert await app.letters() == failed
        assert rows_of(await invariants.read_world(database.url)) == rows_of(before)


def a_partial_file_exists(names: Sequence[str]) -> bool:
    """A file is being written."""
    return any(name.startswith(".") for name in names)


def records_have_no_manifest(names: Sequence[str]) -> bool:
    """A file of records was written, and is being read back."""
    records = [name for name in names if name.endswith(RECORDS)]
    return any(manifest_name(name) not in names for name in records)


def a_manifest_exists(names: Sequence[str]) -> bool:
    """All of a batch was written, and little or nothing of it is deleted yet."""
    return any(map(is_manifest, names))


def kill_an_archiver(
    database: Database, archive: Path, folder: Path, *, when: Callable[[Sequence[str]], bool]
) -> None:
    """Start a worker whose archiver is due, and kill it at the moment *when*."""
    environment = {"HOLDFAST_ARCHIVE_URL": str(archive), "HOLDFAST_DEAD_LETTER_LIMIT": "1"}
    before = set(_names(archive))
    with InvoicePool(database.url, folder, size=1, environment=environment) as pool:
        [worker] = pool.members
        give_up_at = time.monotonic() + 60
        while not when([name for name in _names(archive) if name not in before]):
            # The moments are too short for pauses in between.
            assert worker.alive, worker.output()[-2000:]
            assert time.monotonic() < give_up_at, worker.output()[-2000:]
        worker.kill()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


async def manifests_hold(hold: Holdfast) -> set[str]:
    """Return the ids of the jobs whose letters the archive holds, each in a complete file."""
    restorer, archive = Restorer(hold.runtime), hold.runtime.letters.archive
    assert archive is not None
    held: set[str] = set()
    for manifest in await restorer.manifests():
        unpack(await archive.get(manifest.name, at_most=manifest.bytes), manifest)
        held |= {entry.job_id for entry in manifest.letters}
    return held


async def restored(hold: Holdfast, job_ids: Sequence[str]) -> set[str]:
    """Restore letters, with several calls at once."""
    shares = [LetterFilter(job_ids=tuple(job_ids[start::AT_ONCE])) for start in range(AT_ONCE)]
    moved = await asyncio.gather(*map(hold.dead_letters.restore, shares))
    return {job_id for share in moved for job_id in share.done}


def rows_of(world: World) -> Counter[tuple[str, ...]]:
    """Return all rows as a multiset; a restored history keeps its order, and not its numbers."""
    return Counter(
        (table, *(f"{name}={value}" for name, value in sorted(row.items()) if name != "seq"))
        for table, rows in vars(world).items()
        for row in rows
    )
