"""Letter repair: an operator reads dead letters, and records the cause of a failure and what was done about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.dead_letters.letter import (
    Cause,
    Group,
    Letter,
    LetterFilter,
    LetterStep,
    Step,
    close,
    discard,
    refusal,
    remediate,
    triage,
)
from holdfast.core.errors import ConfigError, StepRefused
from holdfast.core.jobs.stages import StageRow, StageStatus
from holdfast.core.strict_json import ensure_storable
from holdfast.engine.dead_letters.letter_selection import (
    BulkResult,
    JobIdOrFilter,
    LetterSelection,
    changed_meanwhile,
)
from holdfast.engine.dead_letters.preflight import read_jobs
from holdfast.engine.operations.store_access import in_sync

if TYPE_CHECKING:
    import builtins


class StageAttempts(NamedTuple):
    """The status and attempts of one stage of a failed job."""

    stage: str
    status: str
    attempts: int


@dataclass(frozen=True, slots=True)
class DeadLetterDetails:
    """One letter with its steps, its stages and the hash of its arguments."""

    letter: Letter
    steps: list[LetterStep]
    stages: list[StageAttempts]
    payload_hash: str

    @property
    def sanitized_context(self) -> dict[str, Any]:
        """The context of the failure, with the attempts of each stage and a keyed hash of the arguments."""
        attempts = {each.stage: each.attempts for each in self.stages}
        return {**self.letter.sanitized_context, "attempts": attempts, "payload_hash": self.payload_hash}


class LetterRepair(LetterSelection):
    """The operations on dead letters up to their replay, and after it."""

    async def list(self, letter_filter: LetterFilter = LetterFilter()) -> "builtins.list[Letter]":  # noqa: B008 - frozen
        """List letters, the newest job first."""
        await self._access.open_for_change()
        return await self._store.dead_letters.find(letter_filter)

    async def groups(self, letter_filter: LetterFilter = LetterFilter()) -> "builtins.list[Group]":  # noqa: B008 - frozen
        """Group letters by fingerprint, the most recent group first.

        Letters with the same fingerprint have the same job, stage, class of failure and place in the code.
        """
        await self._access.open_for_change()
        return await self._store.dead_letters.groups(letter_filter)

    async def counts(self) -> dict[tuple[str, str], int]:
        """Count letters by the name of their job and their state."""
        await self._access.open_for_change()
        return await self._store.dead_letters.counts()

    async def show(self, job_id: str, *, owner: str | None = None) -> DeadLetterDetails:
        """Return all details of one letter. Raises `LetterNotFound`."""
        ensure_storable(owner=owner)
        await self._access.open_for_change()
        letter = await self._store.dead_letters.get(job_id, owner=owner)
        [job] = await read_jobs(self._store, [letter.job_id])
        rows = await self._store.stages([letter.job_id])
        return DeadLetterDetails(
            letter,
            await self._store.dead_letters.steps(letter.job_id),
            _stage_attempts(letter, rows),
            "" if job is None else self._runtime.redactor.payload_hash(job.args),
        )

    async def triage(
        self,
        selection: JobIdOrFilter,
        cause: Cause | str,
        *,
        actor: str,
        reason: str = "",
        dry_run: bool = False,
    ) -> BulkResult:
        """Record why jobs failed: `transient`, `data`, `configuration` or `code`."""
        await self._access.open_for_change()
        return await self._step(selection, triage(_cause(cause), actor=actor, reason=reason), dry_run=dry_run)

    async def remediate(
        self,
        selection: JobIdOrFilter,
        evidence: str,
        *,
        actor: str,
        reason: str = "",
        correct: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> BulkResult:
        """Record the evidence that the cause is gone.

        *correct* replaces arguments of one job, by name; the others stay. They are checked against the function's
        annotations, and the arguments at submission are kept. Raises `PayloadInvalid`.
        """
        await self._access.open_for_change()
        step = remediate(evidence, actor=actor, reason=reason)
        if correct is None:
            return await self._step(selection, step, dry_run=dry_run)
        if not isinstance(selection, str):
            raise ConfigError("arguments are corrected for one job at a time; name it by its id")
        letter = await self._store.dead_letters.get(selection)
        args = await self._preflight.corrected(letter, correct)
        recorded = replace(step, meta={"corrected": sorted(correct)})
        return await self._step(letter.job_id, recorded, dry_run=dry_run, args=args)

    async def close(
        self, selection: JobIdOrFilter, notes: str, *, actor: str, dry_run: bool = False
    ) -> BulkResult:
        """Record how jobs that completed after their replay were repaired."""
        await self._access.open_for_change()
        return await self._step(selection, close(notes, actor=actor), dry_run=dry_run)

    async def discard(
        self, selection: JobIdOrFilter, reason: str, *, actor: str, dry_run: bool = False
    ) -> BulkResult:
        """Discard letters: their jobs stay failed."""
        await self._access.open_for_change()
        return await self._step(selection, discard(reason, actor=actor), dry_run=dry_run)

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
    groups_sync = in_sync(groups)
    counts_sync = in_sync(counts)
    show_sync = in_sync(show)
    triage_sync = in_sync(triage)
    remediate_sync = in_sync(remediate)
    close_sync = in_sync(close)
    discard_sync = in_sync(discard)

    async def _step(
        self, selection: JobIdOrFilter, step: Step, *, dry_run: bool, args: str | None = None
    ) -> BulkResult:
        """Take a step with each letter that allows it. Raises `StepRefused` if a single letter does not."""
        step = self._redacted(step)
        done: builtins.list[str] = []
        first: Letter | None = None
        refused: dict[str, str] = {}
        async for page in self._pages(selection):
            refused |= {letter.job_id: why for letter in page if (why := refusal(letter, step))}
            seen = [letter.seen for letter in page if letter.job_id not in refused]
            ids = [job_id for job_id, _ in seen]
            moved = (
                ids if dry_run or not seen else await self._store.dead_letters.move(seen, [step], args=args)
            )
            done += moved
            first = first or next((letter for letter in page if letter.job_id in moved), None)
            refused |= {job_id: changed_meanwhile(job_id) for job_id in ids if job_id not in moved}
        if isinstance(selection, str) and refused:
            raise StepRefused(*refused.values())
        if not dry_run:
            self._report(step, first, count=len(done))
        return BulkResult(done, refused)


def _cause(cause: str) -> Cause:
    try:
        return Cause(cause)
    except ValueError:
        raise ConfigError(f"{cause!r} is not a cause; use one of: {', '.join(Cause)}") from None


def _stage_attempts(letter: Letter, rows: Sequence[StageRow]) -> list[StageAttempts]:
    """Return how many attempts each stage had; the job itself counts as one if no stage has failed."""
    attempts = [
        StageAttempts(str(row.key), row.status.value, row.attempt) for row in rows if not row.key.is_wait
    ]
    if letter.stage is None or letter.stage not in {each.stage for each in attempts}:
        attempts.append(
            StageAttempts(letter.stage or "(the job itself)", StageStatus.FAILED.value, letter.attempt)
        )
    return attempts
