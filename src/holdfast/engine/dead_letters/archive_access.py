"""Archive access: an operator archives dead letters now, lists the archived ones, and restores them."""

from holdfast.core.dead_letters.letter import LetterFilter
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.engine.dead_letters.archiver import Archiver
from holdfast.engine.dead_letters.letter_selection import BulkResult, JobIdOrFilter
from holdfast.engine.dead_letters.restorer import Archived, ProgressCallback, Restorer
from holdfast.engine.operations.store_access import OperatorService, StoreAccess, in_sync
from holdfast.engine.runtime import Runtime


class ArchiveAccess(OperatorService):
    """The operations on archived dead letters."""

    def __init__(self, runtime: Runtime, access: StoreAccess) -> None:
        super().__init__(runtime, access)
        self._archiver = Archiver(runtime)
        self._restorer = Restorer(runtime)

    @property
    def has_archive(self) -> bool:
        """Whether an archive is configured."""
        return self._runtime.letters.archive is not None

    async def archive(
        self, *, older_than: Duration | None = None, beyond: int | None = None, dry_run: bool = False
    ) -> int:
        """Archive letters now, then delete them, and return how many.

        Without arguments by the retention; else those *older_than* a duration, or all *beyond* a number of letters.
        Raises `ArchiveUnavailable` if the archive does not answer; letters that it does not hold are not deleted.
        """
        age = None if older_than is None else duration(older_than)
        await self._access.open_for_change()
        move = self._archiver.due if dry_run else self._archiver.archive
        return await move(older_than=age, beyond=beyond)

    async def is_archiving_due(self) -> bool:
        """Return whether a letter is past its retention."""
        await self._access.open_for_change()
        retention = self._runtime.letters.retention
        due = await self._store.retention.letters_to_archive(
            older_than=retention.letters, beyond=retention.most_letters, limit=1
        )
        return bool(due)

    async def ensure_archive(self) -> None:
        """Raise `ArchiveUnavailable` if an archive is configured and does not answer."""
        if self._runtime.letters.archive is not None:
            await self._runtime.letters.archive.names()

    async def archived(self, letter_filter: LetterFilter = LetterFilter()) -> list[Archived]:  # noqa: B008 - frozen
        """List the archived letters, file by file; all of them without a filter.

        The archive knows letters by `job_ids`, `name` and `fingerprint` only; a filter with another field raises
        `ConfigError`. Raises `ArchiveUnavailable` if the archive does not answer.
        """
        await self._access.open_for_change()
        return await self._restorer.archived(letter_filter)

    async def restore(
        self,
        selection: JobIdOrFilter,
        *,
        dry_run: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> BulkResult:
        """Restore letters from the archive, with their jobs, unless they are in the database.

        A single letter that is not restored raises its error. A filter is one that `archived` accepts. *on_progress* is
        called repeatedly with the number of letters examined and their total. Raises `ArchiveUnavailable` if the archive
        does not answer; what was restored before that stays.
        """
        if not isinstance(selection, str | LetterFilter):
            raise ConfigError(
                f"{selection!r} is neither the id of a job nor a filter; name several jobs with LetterFilter(job_ids=…)"
            )
        await self._access.open_for_change()
        letter_filter = LetterFilter(job_ids=(selection,)) if isinstance(selection, str) else selection
        done, refused = await self._restorer.restore(letter_filter, dry_run=dry_run, on_progress=on_progress)
        if isinstance(selection, str):
            for error in refused.values():
                raise error
        return BulkResult(done, {job_id: str(error) for job_id, error in refused.items()})

    archive_sync = in_sync(archive)
    is_archiving_due_sync = in_sync(is_archiving_due)
    ensure_archive_sync = in_sync(ensure_archive)
    archived_sync = in_sync(archived)
    restore_sync = in_sync(restore)
