"""Dead letters as an operator handles them: `hold.dead`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.dead_letters.letter import Cause, Group, Letter, LetterFilter
from holdfast.core.dead_letters.replay_plan import PACE
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.core.strict_json import ensure_storable
from holdfast.engine.dead_letters.service import Dossier, JobIdOrFilter, Moved, Planned, Progress
from holdfast.face.sync import Portal, in_sync

if TYPE_CHECKING:
    import builtins

    from holdfast.engine.dead_letters.restorer import Archived
    from holdfast.face.holdfast import Holdfast


class DeadLetters:
    """What is left of jobs that failed, and the way back. Reached as `hold.dead`.

    *wanted* is one letter, by its job's id, or all that a `LetterFilter` finds. A step that one letter does not allow
    raises `StepRefused`; among many, `Moved.refused` tells why. With *dry_run* nothing is changed.
    """

    def __init__(self, hold: "Holdfast") -> None:
        self._hold = hold

    @property
    def _portal(self) -> Portal:
        return self._hold._portal

    def _on(self, hold: "Holdfast") -> "DeadLetters":
        return hold.dead

    async def list(self, wanted: LetterFilter = LetterFilter()) -> "builtins.list[Letter]":  # noqa: B008 - frozen
        """List letters, the newest job first."""
        return await (await self._hold._dead_letter_service()).letters(wanted)

    async def groups(self, wanted: LetterFilter = LetterFilter()) -> "builtins.list[Group]":  # noqa: B008 - frozen
        """Gather letters by their fingerprint: the same job, stage and class of failure, in the same place of the code."""
        return await (await self._hold._dead_letter_service()).groups(wanted)

    async def show(self, job_id: str, *, owner: str | None = None) -> Dossier:
        """Tell all there is to know about one letter. Raises `LetterNotFound`."""
        ensure_storable(owner=owner)
        return await (await self._hold._dead_letter_service()).show(job_id, owner=owner)

    async def triage(
        self,
        wanted: JobIdOrFilter,
        cause: Cause | str,
        *,
        actor: str,
        reason: str = "",
        dry_run: bool = False,
    ) -> Moved:
        """Put on record why jobs failed: `transient`, `data`, `configuration` or `code`."""
        service = await self._hold._dead_letter_service()
        return await service.triage(wanted, _cause(cause), actor=actor, reason=reason, dry_run=dry_run)

    async def remediate(
        self,
        wanted: JobIdOrFilter,
        evidence: str,
        *,
        actor: str,
        reason: str = "",
        correct: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Moved:
        """Put on record what shows that the cause is gone.

        *correct* gives one job other arguments, by name; those that are not named stay. They are checked against the
        function's annotations, and what the job was submitted with is kept. Raises `PayloadInvalid`.
        """
        service = await self._hold._dead_letter_service()
        return await service.remediate(
            wanted, evidence, actor=actor, reason=reason, correct=correct, dry_run=dry_run
        )

    async def plan(
        self,
        wanted: JobIdOrFilter,
        *,
        safe: str,
        actor: str,
        restart: bool = False,
        canary: int = 1,
        pace: float = PACE,
        dry_run: bool = False,
    ) -> Planned:
        """Find out what can be replayed, and plan it: `Planned.token` lets it begin, within an hour.

        *safe* says why it does no harm if something takes effect twice. Of several letters, *canary* go first, and
        the others follow with *pace* letters a second, once those have completed. Finished stages are kept, unless
        *restart* has them run again.
        """
        service = await self._hold._dead_letter_service()
        return await service.plan(
            wanted, safe=safe, actor=actor, restart=restart, canary=canary, pace=pace, dry_run=dry_run
        )

    async def replay(self, token: str, *, actor: str) -> Progress:
        """Let a plan begin; workers do the rest. Said again, it changes nothing. Raises `PlanStale`."""
        ensure_storable(token=token, actor=actor)
        return await (await self._hold._dead_letter_service()).replay(token, actor=actor)

    async def progress(self, token: str) -> Progress:
        """Tell how far a replay has come. Raises `PlanStale` if there is no such plan."""
        ensure_storable(token=token)
        return await (await self._hold._dead_letter_service()).progress(token)

    async def stop(self, token: str, *, actor: str, reason: str = "") -> Progress:
        """Let no more letters of a plan follow; jobs that are under way go on."""
        ensure_storable(token=token, actor=actor, reason=reason)
        return await (await self._hold._dead_letter_service()).stop(token, actor=actor, reason=reason)

    async def close(self, wanted: JobIdOrFilter, notes: str, *, actor: str, dry_run: bool = False) -> Moved:
        """Put on record how it was repaired, once the job has completed."""
        return await (await self._hold._dead_letter_service()).close(
            wanted, notes, actor=actor, dry_run=dry_run
        )

    async def discard(
        self, wanted: JobIdOrFilter, reason: str, *, actor: str, dry_run: bool = False
    ) -> Moved:
        """Give jobs up."""
        return await (await self._hold._dead_letter_service()).discard(
            wanted, reason, actor=actor, dry_run=dry_run
        )

    async def archive(
        self, *, older_than: Duration | None = None, beyond: int | None = None, dry_run: bool = False
    ) -> int:
        """Archive letters now that are older, or beyond so many, by the retention if nothing is given; count them.

        Raises `ArchiveUnavailable` if the archive is away; what it does not hold then is not deleted.
        """
        age = None if older_than is None else duration(older_than)
        return await (await self._hold._dead_letter_service()).archive(
            older_than=age, beyond=beyond, dry_run=dry_run
        )

    async def archived(self, wanted: LetterFilter = LetterFilter()) -> "builtins.list[Archived]":  # noqa: B008 - a frozen value
        """List what is in the archive, all of it if nothing else is *wanted*.

        The archive knows letters by `job_ids`, `name` and `fingerprint` alone; asked for anything else it raises
        `ConfigError`. Raises `ArchiveUnavailable` if it is away.
        """
        return await (await self._hold._dead_letter_service()).archived(wanted)

    async def restore(
        self,
        wanted: JobIdOrFilter,
        *,
        dry_run: bool = False,
        told: Callable[[int, int], object] | None = None,
    ) -> Moved:
        """Bring letters back from the archive, with their jobs, if they are not in the database.

        A filter is one that `archived` takes. *told* hears now and then how many letters were looked at, and of how
        many. Raises `ArchiveUnavailable` if the archive is away; what came back before that stays.
        """
        if not isinstance(wanted, str | LetterFilter):
            raise ConfigError(
                f"{wanted!r} is no job's id and no filter; name several jobs with LetterFilter(job_ids=…)"
            )
        return await (await self._hold._dead_letter_service()).restore(wanted, dry_run=dry_run, told=told)

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
    groups_sync = in_sync(groups)
    show_sync = in_sync(show)
    triage_sync = in_sync(triage)
    remediate_sync = in_sync(remediate)
    plan_sync = in_sync(plan)
    replay_sync = in_sync(replay)
    progress_sync = in_sync(progress)
    stop_sync = in_sync(stop)
    close_sync = in_sync(close)
    discard_sync = in_sync(discard)
    archive_sync = in_sync(archive)
    archived_sync = in_sync(archived)
    restore_sync = in_sync(restore)


def _cause(cause: str) -> Cause:
    try:
        return Cause(cause)
    except ValueError:
        raise ConfigError(f"{cause!r} is no cause; say one of: {', '.join(Cause)}") from None
