"""Bringing dead letters back from the archive: of each the newest copy, one file of the archive after another."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, NamedTuple

from holdfast.core.archiving import (
    LARGEST_MANIFEST,
    LetterEntry,
    Manifest,
    chosen,
    ensure_known,
    is_manifest,
    load_manifest,
    unpack,
    unseal_record,
)
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing, HoldfastError, LetterNotFound, StepRefused
from holdfast.core.letters import LetterFilter, letter_id
from holdfast.engine.parts import Parts
from holdfast.ports.archive import Sealer

Told = Callable[[int, int], object]
"""Hears how many letters were looked at, and of how many."""


class Archived(NamedTuple):
    """A letter in the archive, and the file that holds it."""

    letter: LetterEntry
    file: str


class Copy(NamedTuple):
    """A letter in the archive: the file that holds it, and what the manifest says of it."""

    manifest: Manifest
    letter: LetterEntry


Shelf = Mapping[str, Sequence[Copy]]
"""The copies that there are of each job's letter: one that came back, and failed again, has several."""


class Found(NamedTuple):
    """A copy that was read."""

    letter: LetterEntry
    record: Mapping[str, Any]


class Unread(NamedTuple):
    """A copy that is there, and cannot be read."""

    letter: LetterEntry
    error: HoldfastError


class Restored(NamedTuple):
    """Which letters are back, and why others are not."""

    done: list[str]
    refused: dict[str, HoldfastError]


class Restorer:
    """Reads an archive, and brings back what is wanted of it."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._metrics = parts.metrics
        self._options = parts.letters

    async def restore(
        self, wanted: LetterFilter, *, dry_run: bool = False, told: Told | None = None
    ) -> Restored:
        """Bring letters back that are not in the database, with their jobs as they were.

        Whoever is named by its id, and is not brought back, is refused. With *dry_run* nothing is written. Raises
        `ConfigError` for a filter by what the archive does not know, and `ArchiveUnavailable`; what was brought back
        before that stays.
        """
        ensure_known(wanted)
        wanted = _spelled(wanted)
        manifests, unread = await self._manifests()
        shelf = _shelf(manifests, wanted)
        outcome = Restored([], _absent(wanted, shelf, unread))
        looked = 0
        for page in _by_file(shelf):
            room = None if wanted.limit is None else wanted.limit - len(outcome.done)
            if room == 0:
                break
            await self._bring(page, wanted, outcome, room=room, dry_run=dry_run)
            looked += len(page)
            if told is not None:
                told(looked, len(shelf))
        return outcome

    async def archived(self, wanted: LetterFilter) -> list[Archived]:
        """List what is in the archive, file by file, and whether or not it is in the database, too."""
        ensure_known(wanted)
        wanted = _spelled(wanted)
        found = (
            Archived(letter, manifest.name)
            for manifest in await self.manifests()
            for letter in chosen(manifest.letters, wanted)
        )
        return list(islice(found, wanted.limit))

    async def manifests(self) -> list[Manifest]:
        """Read what the archive holds. A manifest that cannot be read is logged, and does not hide the others."""
        found, _ = await self._manifests()
        return found

    async def _manifests(self) -> tuple[list[Manifest], list[HoldfastError]]:
        archive, sealer = self._options.named_archive(), await self._sealer()
        found: list[Manifest] = []
        unread: list[HoldfastError] = []
        for name in await archive.names():
            if is_manifest(name):
                try:
                    found.append(
                        load_manifest(await archive.get(name, at_most=LARGEST_MANIFEST), sealer.unseal)
                    )
                except (ArchiveDamaged, ArchiveMissing) as error:
                    self._journal.error("manifest not read", manifest=name, message=str(error))
                    unread.append(error)
        return found, unread

    async def _bring(
        self, page: Shelf, wanted: LetterFilter, outcome: Restored, *, room: int | None, dry_run: bool
    ) -> None:
        """Bring back those of *page* that are away, and add to *outcome* what became of them."""
        done, refused = outcome
        here = await self._here(page)
        if wanted.job_ids is not None:
            refused.update((job_id, _is_here(job_id)) for job_id in here)
        away = dict(islice(((job_id, page[job_id]) for job_id in page if job_id not in here), room))
        records = {}
        for job_id, copies in (await self._read(away)).items():
            newest = _newest(copies)
            if isinstance(newest, HoldfastError):
                refused[job_id] = newest
            else:
                records[job_id] = newest
        back = list(records) if dry_run else await self._put_back(list(records.values()))
        refused.update((job_id, _is_here(job_id)) for job_id in records if job_id not in back)
        done.extend(back)

    async def _here(self, page: Shelf) -> set[str]:
        """Name those of the letters that are in the database."""
        found = await self._store.letters(LetterFilter(job_ids=tuple(page), limit=len(page)))
        return {letter.job_id for letter in found}

    async def _read(self, page: Shelf) -> dict[str, list[Found | Unread]]:
        """Read all copies; a file that cannot be read is told of, and does not hide the others."""
        found: dict[str, list[Found | Unread]] = {job_id: [] for job_id in page}
        files = {copy.manifest.name: copy.manifest for copies in page.values() for copy in copies}
        for manifest in files.values():
            try:
                for each in await self._records(manifest, page):
                    found[each.letter.job_id].append(each)
            except (ArchiveDamaged, ArchiveMissing) as error:
                self._journal.error("archive file not read", file=manifest.name, message=str(error))
                for letter in manifest.letters:
                    if letter.job_id in page:
                        found[letter.job_id].append(Unread(letter, error))
        return found

    async def _records(self, manifest: Manifest, page: Shelf) -> list[Found]:
        sealer = await self._sealer()
        data = await self._options.named_archive().get(manifest.name, at_most=manifest.bytes)
        records = unpack(data, manifest)
        return [
            Found(letter, unseal_record(record, sealer.unseal))
            for letter, record in zip(manifest.letters, records, strict=True)
            if letter.job_id in page
        ]

    async def _sealer(self) -> Sealer:
        return self._options.sealer_of(await self._store.redaction_key())

    async def _put_back(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        restored = await self._store.restore_letters(records) if records else []
        if restored:
            self._metrics.count("letters_restored", len(restored))
            self._journal.info("restored", letters=len(restored))
        return restored


def _shelf(manifests: Sequence[Manifest], wanted: LetterFilter) -> Shelf:
    shelf: dict[str, list[Copy]] = {}
    for manifest in manifests:
        for letter in chosen(manifest.letters, wanted):
            shelf.setdefault(letter.job_id, []).append(Copy(manifest, letter))
    return shelf


def _by_file(shelf: Shelf) -> Iterator[Shelf]:
    """Take letters together that are in one file: as many records as fit into that are in memory at once."""
    for _, group in groupby(shelf.items(), key=lambda item: item[1][0].manifest.name):
        yield dict(group)


def _newest(copies: Sequence[Found | Unread]) -> Mapping[str, Any] | HoldfastError:
    """Choose the copy that a letter is restored from, or tell why there is none.

    One that cannot be read is passed over, unless it is of a later failure than all others: what the job has done
    before that failure would be done again.
    """
    unread = [copy for copy in copies if isinstance(copy, Unread)]
    newest = max((copy for copy in copies if isinstance(copy, Found)), key=_found_age, default=None)
    if newest is None:
        return unread[-1].error
    for copy in unread:
        if copy.letter.last_failure_at > newest.letter.last_failure_at:
            return ArchiveDamaged(f"{copy.error}, or move its manifest away: an earlier copy can be read")
    return newest.record


def _found_age(copy: Found) -> tuple[int, int]:
    return _age(copy.record)


def _age(record: Mapping[str, Any]) -> tuple[int, int]:
    """Tell which of two records of a job is the later one.

    Not by the names of their files: clocks are set back, and a worker may be slow to write what it has read long ago.
    """
    return record["letter"]["generation"], record["letter"]["version"]


def _spelled(wanted: LetterFilter) -> LetterFilter:
    """Name jobs as they are stored."""
    if wanted.job_ids is None:
        return wanted
    return replace(wanted, job_ids=tuple(map(letter_id, wanted.job_ids)))


def _absent(wanted: LetterFilter, shelf: Shelf, unread: Sequence[HoldfastError]) -> dict[str, HoldfastError]:
    """Refuse the ids that no manifest names; one that cannot be read may name them."""
    absent = [job_id for job_id in wanted.job_ids or () if job_id not in shelf]
    if unread:
        hidden = f"manifests that cannot be read: {len(unread)}, the first because {unread[0]}"
        return {job_id: ArchiveDamaged(f"job {job_id} may be in {hidden}") for job_id in absent}
    return {job_id: LetterNotFound(f"the archive has no dead letter of job {job_id}") for job_id in absent}


def _is_here(job_id: str) -> StepRefused:
    return StepRefused(f"job {job_id} is in the database already, and was left alone")
