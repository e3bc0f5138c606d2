"""Which of several records of a letter is restored."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.core.archiving import LetterEntry, dump_manifest, manifest_name, manifest_of, pack, seal_record
from holdfast.core.errors import LetterNotFound
from holdfast.engine.archivist import Archivist
from holdfast.engine.options import LetterOptions
from tests.simulation.vault import Wax

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.engine.parts import Parts

JOB = "00000000-0000-7000-8000-000000000001"
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


class Shelf:
    """An archive in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def archived(self, *, at: datetime, generation: int, version: int) -> None:
        letter = {"job_id": JOB, "generation": generation, "version": version}
        packed = pack([seal_record({"letter": letter, "private": {}}, Wax().seal)])
        manifest = manifest_of(packed, [LetterEntry(JOB, "plain", "f00", at)], at=at)
        self.files[manifest.name] = packed.data
        self.files[manifest_name(manifest.name)] = dump_manifest(manifest)

    async def put(self, name: str, data: bytes) -> None:
        self.files[name] = data

    async def get(self, name: str) -> bytes:
        return self.files[name]

    async def names(self) -> list[str]:
        return sorted(self.files)


class Store:
    """A store that takes back whatever it is given."""

    def __init__(self) -> None:
        self.restored: list[Mapping[str, Any]] = []

    async def redaction_key(self) -> bytes:
        return b"key"

    async def restore_letters(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        self.restored += records
        return [record["letter"]["job_id"] for record in records]


def an_archivist(store: Store, shelf: Shelf) -> Archivist:
    silent = SimpleNamespace(info=lambda *_, **__: None, count=lambda *_, **__: None)
    options = LetterOptions(archive=shelf, sealer_of=lambda _: Wax())
    parts = SimpleNamespace(store=store, journal=silent, metrics=silent, letters=options)
    return Archivist(cast("Parts", parts))


@pytest.mark.parametrize(("generation", "version"), [(2, 1), (1, 9)])
async def test_the_later_letter_is_restored_whatever_the_names_of_the_files_say(
    generation: int, version: int
) -> None:
    """A clock that is set back, or a worker that is slow to write, gives the later one the earlier name."""
    store, shelf = Store(), Shelf()
    shelf.archived(at=NOON, generation=generation, version=version)
    shelf.archived(at=LATER, generation=1, version=5)

    assert await an_archivist(store, shelf).restore([JOB]) == [JOB]

    [record] = store.restored
    assert record["letter"] == {"job_id": JOB, "generation": generation, "version": version}


async def test_nothing_is_restored_if_one_of_the_jobs_is_not_in_the_archive() -> None:
    store, shelf = Store(), Shelf()
    shelf.archived(at=NOON, generation=1, version=1)

    with pytest.raises(LetterNotFound):
        await an_archivist(store, shelf).restore([JOB, "00000000-0000-7000-8000-000000000002"])

    assert store.restored == []
