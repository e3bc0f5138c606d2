"""The restorer: it brings dead letters back from the archive, each from its newest copy, file by file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, NamedTuple

from holdfast.core.dead_letters.archive_format import (
    LARGEST_MANIFEST,
    LetterEntry,
    Manifest,
    decrypt_record,
    ensure_known,
    is_manifest,
    load_manifest,
    matching,
    unpack,
)
from holdfast.core.dead_letters.letter import LetterFilter, letter_id
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing, HoldfastError, LetterNotFound, StepRefused
from holdfast.engine.runtime import Runtime
from holdfast.ports.archive import Encrypter

ProgressCallback = Callable[[int, int], object]
"""Called with the number of letters examined so far, and of all."""


class Archived(NamedTuple):
    """A letter in the archive, and the file that holds it."""

    letter: LetterEntry
    file: str


class Copy(NamedTuple):
    """A letter in the archive: the file that holds it, and what the manifest says of it."""

    manifest: Manifest
    letter: LetterEntry


CopiesByJob = Mapping[str, Sequence[Copy]]
"""The archived copies of each job's letter: one that was restored, and failed again, has several."""


class Found(NamedTuple):
    """A copy that was read."""

    letter: LetterEntry
    record: Mapping[str, Any]


class Unread(NamedTuple):
    """A copy that exists, and cannot be read."""

    letter: LetterEntry
    error: HoldfastError


class Restored(NamedTuple):
    """The ids of the restored letters, and the errors of the others."""

    done: list[str]
    refused: dict[str, HoldfastError]


class Restorer:
    """Lists what is in the archive, and restores letters from it."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._logger = runtime.logger
        self._metrics = runtime.metrics
        self._options = runtime.letters

    async def restore(
        self,
        letter_filter: LetterFilter,
        *,
        dry_run: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> Restored:
        """Restore letters that are not in the database, with their jobs as they were.

        A letter that is named by its job's id, and is not restored, is refused with an error. With *dry_run* nothing is
        written. Raises `ConfigError` for a filter by a field that the archive does not have, and `ArchiveUnavailable`;
        what was restored before that stays.
        """
        ensure_known(letter_filter)
        letter_filter = _normalized(letter_filter)
        manifests, unread = await self._manifests()
        copies_by_job = _copies_by_job(manifests, letter_filter)
        outcome = Restored([], _absent(letter_filter, copies_by_job, unread))
        examined = 0
        # By the file of the first copy of each letter: the records of one group are in memory at once.
        for _, group in groupby(copies_by_job.items(), key=lambda item: item[1][0].manifest.name):
            room = None if letter_filter.limit is None else letter_filter.limit - len(outcome.done)
            if room == 0:
                break
            page = dict(group)
            await self._restore_page(page, letter_filter, outcome, room=room, dry_run=dry_run)
            examined += len(page)
            if on_progress is not None:
                on_progress(examined, len(copies_by_job))
        return outcome

    async def archived(self, letter_filter: LetterFilter) -> list[Archived]:
        """List what is in the archive, file by file, and whether or not it is in the database, too."""
        ensure_known(letter_filter)
        letter_filter = _normalized(letter_filter)
        found = (
            Archived(letter, manifest.name)
            for manifest in await self.manifests()
            for letter in matching(manifest.letters, letter_filter)
        )
        return list(islice(found, letter_filter.limit))

    async def manifests(self) -> list[Manifest]:
        """Read what the archive holds. A manifest that cannot be read is logged, and does not hide the others."""
        found, _ = await self._manifests()
        return found

    async def _manifests(self) -> tuple[list[Manifest], list[HoldfastError]]:
        archive, encrypter = self._options.named_archive(), await self._encrypter()
        found: list[Manifest] = []
        unread: list[HoldfastError] = []
        for name in await archive.names():
            if is_manifest(name):
                try:
                    found.append(
                        load_manifest(await archive.get(name, at_most=LARGEST_MANIFEST), encrypter.decrypt)
                    )
                except (ArchiveDamaged, ArchiveMissing) as error:
                    self._logger.error("manifest not read", manifest=name, message=str(error))
                    unread.append(error)
        return found, unread

    async def _restore_page(
        self,
        page: CopiesByJob,
        letter_filter: LetterFilter,
        outcome: Restored,
        *,
        room: int | None,
        dry_run: bool,
    ) -> None:
        """Restore those of *page* that are not in the database, and add the results to *outcome*."""
        done, refused = outcome
        found = await self._store.dead_letters.find(LetterFilter(job_ids=tuple(page), limit=len(page)))
        in_database = {letter.job_id for letter in found}
        if letter_filter.job_ids is not None:
            refused.update((job_id, _already_stored(job_id)) for job_id in in_database)
        away = dict(islice(((job_id, page[job_id]) for job_id in page if job_id not in in_database), room))
        records = {}
        for job_id, copies in (await self._read(away)).items():
            newest = _newest(copies)
            if isinstance(newest, HoldfastError):
                refused[job_id] = newest
            else:
                records[job_id] = newest
        back = list(records) if dry_run else await self._put_back(list(records.values()))
        refused.update((job_id, _already_stored(job_id)) for job_id in records if job_id not in back)
        done.extend(back)

    async def _read(self, page: CopiesByJob) -> dict[str, list[Found | Unread]]:
        """Read all copies; a file that cannot be read is logged, and does not hide the others."""
        found: dict[str, list[Found | Unread]] = {job_id: [] for job_id in page}
        files = {copy.manifest.name: copy.manifest for copies in page.values() for copy in copies}
        for manifest in files.values():
            try:
                for each in await self._records(manifest, page):
                    found[each.letter.job_id].append(each)
            except (ArchiveDamaged, ArchiveMissing) as error:
                self._logger.error("archive file not read", file=manifest.name, message=str(error))
                for letter in manifest.letters:
                    if letter.job_id in page:
                        found[letter.job_id].append(Unread(letter, error))
        return found

    async def _records(self, manifest: Manifest, page: CopiesByJob) -> list[Found]:
        encrypter = await self._encrypter()
        data = await self._options.named_archive().get(manifest.name, at_most=manifest.bytes)
        records = unpack(data, manifest)
        return [
            Found(letter, decrypt_record(record, encrypter.decrypt))
            for letter, record in zip(manifest.letters, records, strict=True)
            if letter.job_id in page
        ]

    async def _encrypter(self) -> Encrypter:
        return self._options.encrypter_of(await self._store.redaction_key())

    async def _put_back(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        restored = await self._store.retention.restore_letters(records) if records else []
        if restored:
            self._metrics.count("letters_restored", len(restored))
            self._logger.info("dead letters restored", letters=len(restored))
        return restored


def _copies_by_job(manifests: Sequence[Manifest], letter_filter: LetterFilter) -> CopiesByJob:
    copies_by_job: dict[str, list[Copy]] = {}
    for manifest in manifests:
        for letter in matching(manifest.letters, letter_filter):
            copies_by_job.setdefault(letter.job_id, []).append(Copy(manifest, letter))
    return copies_by_job


def _newest(copies: Sequence[Found | Unread]) -> Mapping[str, Any] | HoldfastError:
    """Return the copy that a letter is restored from, or the error if there is none.

    An unreadable copy is skipped, unless it is of a later failure than all others: what the job did before that failure
    would be done again.
    """
    unread = [copy for copy in copies if isinstance(copy, Unread)]
    newest = max((copy for copy in copies if isinstance(copy, Found)), key=_age, default=None)
    if newest is None:
        return unread[-1].error
    for copy in unread:
        if copy.letter.last_failure_at > newest.letter.last_failure_at:
            return ArchiveDamaged(f"{copy.error}, or move its manifest away: an earlier copy can be read")
    return newest.record


def _age(copy: Found) -> tuple[int, int]:
    """Return a key that orders the copies of a letter by age.

    Not the names of their files: clocks are set back, and a worker may write late what it read long before.
    """
    letter = copy.record["letter"]
    return letter["generation"], letter["version"]


def _normalized(letter_filter: LetterFilter) -> LetterFilter:
    """Normalize the job ids of a filter to the stored form."""
    if letter_filter.job_ids is None:
        return letter_filter
    return replace(letter_filter, job_ids=tuple(map(letter_id, letter_filter.job_ids)))


def _absent(
    letter_filter: LetterFilter, copies_by_job: CopiesByJob, unread: Sequence[HoldfastError]
) -> dict[str, HoldfastError]:
    """Return an error for each id that no manifest names; an unreadable manifest may name it."""
    absent = [job_id for job_id in letter_filter.job_ids or () if job_id not in copies_by_job]
    if unread:
        hidden = f"manifests that cannot be read: {len(unread)}, the first because {unread[0]}"
        return {job_id: ArchiveDamaged(f"job {job_id} may be in {hidden}") for job_id in absent}
    return {job_id: LetterNotFound(f"the archive has no dead letter of job {job_id}") for job_id in absent}


def _already_stored(job_id: str) -> StepRefused:
    return StepRefused(f"job {job_id} is in the database already, and was not restored")
