"""Which of several records of a letter is restored."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.core.dead_letters.archive_format import (
    LetterEntry,
    dump_manifest,
    encrypt_record,
    manifest_name,
    manifest_of,
    pack,
)
from holdfast.core.dead_letters.letter import LetterFilter
from holdfast.core.errors import (
    ArchiveDamaged,
    ArchiveMissing,
    ArchiveUnavailable,
    ConfigError,
    LetterNotFound,
    StepRefused,
)
from holdfast.engine.dead_letters.restorer import Restorer
from holdfast.engine.options import LetterOptions
from tests.simulation.simulated_archive import Base64Encrypter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.engine.runtime import Runtime

JOB, OTHER, THIRD = (f"00000000-0000-7000-8000-00000000000{number}" for number in (1, 2, 3))
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


class Shelf:
    """An archive in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.is_away = False

    def archived(
        self,
        *job_ids: str,
        at: datetime = NOON,
        failed_at: datetime = NOON,
        name: str = "plain",
        generation: int = 1,
        version: int = 1,
    ) -> str:
        """Have a file with letters; give its name."""
        letters = [
            {"job_id": job_id, "generation": generation, "version": version} for job_id in job_ids or (JOB,)
        ]
        packed = pack(
            [
                encrypt_record({"letter": letter, "private": {}}, Base64Encrypter().encrypt)
                for letter in letters
            ]
        )
        entries = [LetterEntry(job_id, name, f"at {name}", failed_at) for job_id in job_ids or (JOB,)]
        manifest = manifest_of(packed, entries, at=at)
        self.files[manifest.name] = packed.data
        self.files[manifest_name(manifest.name)] = dump_manifest(manifest, Base64Encrypter().encrypt)
        return manifest.name

    async def put(self, name: str, data: bytes) -> None:
        self.files[name] = data

    async def get(self, name: str, *, at_most: int) -> bytes:
        if self.is_away:
            raise ArchiveUnavailable("it is closed")
        if name not in self.files:
            raise ArchiveMissing(f"there is no {name}")
        return self.files[name]

    async def names(self) -> list[str]:
        return sorted(self.files)


class Store:
    """A store that takes back whatever it does not have, a call at a time."""

    def __init__(self, *here: str, jobs: tuple[str, ...] = ()) -> None:
        self.here = set(here)
        self.jobs = jobs
        self.restored: list[Mapping[str, Any]] = []
        self.calls: list[int] = []
        self.dead_letters = self.retention = self

    async def redaction_key(self) -> bytes:
        return b"key"

    async def find(self, letter_filter: LetterFilter) -> list[Any]:
        return [
            SimpleNamespace(job_id=job_id) for job_id in letter_filter.job_ids or () if job_id in self.here
        ]

    async def restore_letters(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        back = [record for record in records if record["letter"]["job_id"] not in self.jobs]
        self.restored += back
        self.calls.append(len(records))
        self.here |= {record["letter"]["job_id"] for record in back}
        return [record["letter"]["job_id"] for record in back]


class Lines:
    """Keeps what was logged, and counts nothing."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []

    def info(self, event: str, **_: object) -> None: ...

    def error(self, event: str, **fields: str) -> None:
        self.errors.append((event, fields.get("file") or fields["manifest"]))

    def count(self, *_: object) -> None: ...


def a_restorer(store: Store, shelf: Shelf, lines: Lines | None = None) -> Restorer:
    logger = lines or Lines()
    options = LetterOptions(archive=shelf, encrypter_of=lambda _: Base64Encrypter())
    return Restorer(
        cast("Runtime", SimpleNamespace(store=store, logger=logger, metrics=logger, letters=options))
    )


def of(*job_ids: str) -> LetterFilter:
    return LetterFilter(job_ids=job_ids)


@pytest.mark.parametrize(("generation", "version"), [(2, 1), (1, 9)])
async def test_the_later_letter_is_restored_whatever_the_names_of_the_files_say(
    generation: int, version: int
) -> None:
    """A clock that is set back, or a worker that is slow to write, gives the later one the earlier name."""
    store, shelf = Store(), Shelf()
    shelf.archived(at=NOON, generation=generation, version=version)
    shelf.archived(at=LATER, generation=1, version=5)

    assert await a_restorer(store, shelf).restore(of(JOB)) == ([JOB], {})

    [record] = store.restored
    assert record["letter"] == {"job_id": JOB, "generation": generation, "version": version}


async def test_a_job_that_is_not_in_the_archive_does_not_keep_the_others_from_coming_back() -> None:
    store, shelf = Store(), Shelf()
    shelf.archived()

    done, refused = await a_restorer(store, shelf).restore(of(OTHER, JOB))

    assert (done, list(refused)) == ([JOB], [OTHER])
    assert isinstance(refused[OTHER], LetterNotFound)


async def test_a_damaged_older_copy_does_not_hide_a_newer_one() -> None:
    store, shelf, lines = Store(), Shelf(), Lines()
    damaged = shelf.archived(JOB, OTHER, at=NOON)
    shelf.archived(JOB, at=LATER, failed_at=LATER, generation=2)
    shelf.archived(THIRD, at=LATER)
    shelf.files[damaged] = b"worms"

    done, refused = await a_restorer(store, shelf, lines).restore(of(JOB, OTHER, THIRD))

    assert (sorted(done), list(refused)) == ([JOB, THIRD], [OTHER])
    assert isinstance(refused[OTHER], ArchiveDamaged)
    assert [record["letter"]["generation"] for record in store.restored] == [2, 1]
    assert lines.errors == [("archive file not read", damaged)]


async def test_a_file_that_is_gone_counts_as_one_that_cannot_be_read() -> None:
    store, shelf, lines = Store(), Shelf(), Lines()
    gone = shelf.archived(at=NOON)
    shelf.archived(at=LATER, version=2)
    del shelf.files[gone]

    assert await a_restorer(store, shelf, lines).restore(of(JOB)) == ([JOB], {})

    assert lines.errors == [("archive file not read", gone)]


async def test_a_letter_is_not_restored_from_before_a_failure_whose_copy_is_damaged() -> None:
    store, shelf = Store(), Shelf()
    shelf.archived(at=NOON)
    shelf.files[shelf.archived(at=LATER, failed_at=LATER, generation=2)] = b"worms"

    done, refused = await a_restorer(store, shelf).restore(of(JOB))

    assert (done, store.restored) == ([], [])
    assert str(refused[JOB]).endswith(
        "take it from a copy of the archive, or move its manifest away: an earlier copy can be read"
    )


async def test_an_archive_that_is_away_is_no_damaged_one() -> None:
    shelf = Shelf()
    shelf.archived()
    shelf.is_away = True

    with pytest.raises(ArchiveUnavailable):
        await a_restorer(Store(), shelf).restore(of(JOB))


async def test_a_filter_means_what_is_not_in_the_database_and_a_name_is_refused() -> None:
    store, shelf = Store(JOB), Shelf()
    shelf.archived(JOB, OTHER)

    assert await a_restorer(store, shelf).restore(LetterFilter(name="plain", limit=1)) == ([OTHER], {})
    done, refused = await a_restorer(store, shelf).restore(of(JOB.upper()))

    assert (done, list(refused)) == ([], [JOB])
    assert isinstance(refused[JOB], StepRefused)


async def test_a_letter_whose_job_is_in_the_database_is_refused() -> None:
    shelf = Shelf()
    shelf.archived()

    done, refused = await a_restorer(Store(jobs=(JOB,)), shelf).restore(LetterFilter(name="plain"))

    assert (done, list(refused)) == ([], [JOB])


async def test_letters_are_chosen_by_what_a_manifest_says_of_them() -> None:
    store, shelf = Store(), Shelf()
    shelf.archived(JOB, OTHER)
    shelf.archived(THIRD, at=LATER, name="order")
    restorer = a_restorer(store, shelf)

    assert [each.letter.job_id for each in await restorer.archived(LetterFilter(name="order"))] == [THIRD]
    assert [each.letter.job_id for each in await restorer.archived(LetterFilter(limit=2))] == [JOB, OTHER]
    assert [each.letter.job_id for each in await restorer.archived(of(OTHER.upper()))] == [OTHER]
    assert await restorer.restore(LetterFilter(fingerprint="at order")) == ([THIRD], {})
    for ask in (restorer.restore, restorer.archived):
        with pytest.raises(
            ConfigError, match=r"letters by queue, stage; filter by job_ids, name, fingerprint$"
        ):
            await ask(LetterFilter(queue="mail", stage="llm", name="order"))


async def test_a_dry_run_reports_what_would_come_back_and_writes_nothing() -> None:
    store, shelf = Store(JOB), Shelf()
    shelf.archived(JOB, OTHER)
    shelf.files[shelf.archived(THIRD, at=LATER)] = b"worms"

    done, refused = await a_restorer(store, shelf).restore(LetterFilter(), dry_run=True)

    assert (done, list(refused), store.calls) == ([OTHER], [THIRD], [])


async def test_letters_come_back_file_by_file_until_there_are_enough() -> None:
    store, shelf = Store(), Shelf()
    for number in range(4):
        ids = [f"00000000-0000-7000-8000-0000000000{number}{each}" for each in range(3)]
        shelf.archived(*ids, at=NOON.replace(minute=number))
    progress: list[tuple[int, int]] = []

    done, _ = await a_restorer(store, shelf).restore(
        LetterFilter(limit=7), on_progress=lambda *counts: progress.append(counts)
    )

    assert (len(done), store.calls, progress) == (7, [3, 3, 1], [(3, 12), (6, 12), (9, 12)])
