"""The dead-letter service: the operations of an operator on one dead letter, or on all that a filter selects.

A step that is not allowed for a single letter raises an error; for many letters, the result lists the refused ones.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
    validate,
)
from holdfast.core.dead_letters.replay_plan import PACE, Plan, PlanCounts, PreflightCheck, start, stop
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError, StepRefused
from holdfast.core.jobs.stages import StageRow, StageStatus
from holdfast.core.strict_json import ensure_storable
from holdfast.engine.dead_letters.archiver import Archiver
from holdfast.engine.dead_letters.preflight import Preflight, read_jobs
from holdfast.engine.dead_letters.restorer import Archived, ProgressCallback, Restorer
from holdfast.engine.operations.store_access import OperatorService, StoreAccess, in_sync
from holdfast.engine.runtime import Runtime

if TYPE_CHECKING:
    import builtins

PAGE = 500
"""Letters that are read or updated together."""

JobIdOrFilter = str | LetterFilter
"""One letter, by its job's id, or all that a filter selects."""


class BulkResult(NamedTuple):
    """The job ids of the letters that took a step, and why others were refused."""

    done: list[str]
    refused: dict[str, str]


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


class PlanResult(NamedTuple):
    """The checks of each letter; *token* is that of the plan, `None` without one."""

    token: str | None
    ready: list[str]
    checks: dict[str, list[PreflightCheck]]

    @property
    def refused(self) -> dict[str, str]:
        """Why letters are not part of the plan, by job id."""
        reasons = {
            job_id: "; ".join(check.detail for check in found if not check.holds)
            for job_id, found in self.checks.items()
        }
        return {job_id: why for job_id, why in reasons.items() if why}


class Progress(NamedTuple):
    """A plan, and the states of its letters."""

    plan: Plan
    counts: PlanCounts


class DeadLetterService(OperatorService):
    """The operations of an operator on dead letters. Reached as `hold.dead_letters`.

    A *selection* is one letter, by its job's id, or all that a `LetterFilter` selects. A step that a single letter does
    not allow raises `StepRefused`; of several letters, `BulkResult.refused` says why. With *dry_run* nothing is changed.
    """

    def __init__(self, runtime: Runtime, access: StoreAccess) -> None:
        super().__init__(runtime, access)
        self._archiver = Archiver(runtime)
        self._restorer = Restorer(runtime)
        self._preflight = Preflight(runtime)

    @property
    def has_archive(self) -> bool:
        """Whether an archive is configured."""
        return self._runtime.letters.archive is not None

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

    async def plan(
        self,
        selection: JobIdOrFilter,
        *,
        safe: str,
        actor: str,
        restart: bool = False,
        canary: int = 1,
        pace: float = PACE,
        dry_run: bool = False,
    ) -> PlanResult:
        """Check which letters can be replayed, and make a plan for those; the others are left as they are.

        `PlanResult.token` starts the plan, within an hour. *safe* states why repeated effects do no harm. *canary* letters
        are replayed first; when they have completed, the others follow at *pace* letters per second. Finished stages
        are kept; with *restart* they run again.
        """
        await self._access.open_for_change()
        draft = self._draft(actor=actor, restart=restart, canary=canary, pace=pace)
        step = self._redacted(validate(safe, draft.token, actor=actor))
        checked = [
            each
            async for page in self._pages(selection)
            for each in await self._preflight.check(page, restart=restart)
        ]
        found = {letter.job_id: its_checks for letter, its_checks in checked}
        ready = [letter for letter, its_checks in checked if all(check.holds for check in its_checks)]
        if dry_run or not ready:
            return PlanResult(None, [letter.job_id for letter in ready], found)
        now = await self._store.now()
        plan = replace(draft, made_at=now.timestamp(), letters=len(ready))
        moved = await self._store.dead_letters.move([letter.seen for letter in ready], [step], plan=plan)
        self._report(
            step, next((letter for letter in ready if letter.job_id in moved), None), count=len(moved)
        )
        for letter in ready:
            if letter.job_id not in moved:
                found[letter.job_id].append(
                    PreflightCheck("workflow", holds=False, detail=_changed(letter.job_id))
                )
        # A plan of which a letter has changed meanwhile is stale: its token cannot be used.
        return PlanResult(plan.token if len(moved) == len(ready) else None, moved, found)

    def _draft(self, *, actor: str, restart: bool, canary: int, pace: float) -> Plan:
        """Make a plan without letters, before any is read. Raises `ConfigError` for invalid options."""
        try:
            return Plan(
                token=self._runtime.ids.job_id(),
                actor=actor,
                made_at=0.0,
                letters=0,
                restart=restart,
                code_version=self._runtime.letters.code_version,
                canary=canary,
                pace=pace,
            )
        except ValueError as refused:
            raise ConfigError(str(refused)) from None

    async def replay(self, token: str, *, actor: str) -> Progress:
        """Start a plan; workers carry it out. Idempotent. Raises `PlanStale`."""
        ensure_storable(token=token, actor=actor)
        await self._access.open_for_change()
        version = self._runtime.letters.code_version
        return await self._change(
            token,
            lambda plan, counts, now: start(plan, counts, now, actor=actor, code_version=version),
        )

    async def stop(self, token: str, *, actor: str, reason: str = "") -> Progress:
        """Stop a plan: no further letters are replayed; jobs that are running go on."""
        ensure_storable(token=token, actor=actor, reason=reason)
        await self._access.open_for_change()
        reason = self._runtime.redactor(reason)
        return await self._change(token, lambda plan, *_: stop(plan, actor=actor, reason=reason))

    async def progress(self, token: str) -> Progress:
        """Return the progress of a plan. Raises `PlanStale` if there is none."""
        ensure_storable(token=token)
        await self._access.open_for_change()
        return await self._change(token, lambda plan, *_: plan)

    async def _change(self, token: str, decide: Callable[[Plan, PlanCounts, float], Plan]) -> Progress:
        """Replace a plan by the result of *decide*, which is called again after a concurrent change."""
        while True:
            row = await self._store.replay_plans.get(token)
            plan = Plan.load(row.state)
            now, counts = await self._store.replay_plans.counts(token)
            changed = decide(plan, counts, now)
            if changed == plan:
                return Progress(plan, counts)
            if await self._store.replay_plans.advance(row, changed) is not None:
                self._report_change(changed)
                return Progress(changed, counts)

    def _report_change(self, plan: Plan) -> None:
        fields = {"plan": plan.token, "actor": plan.actor}
        if plan.is_running:
            self._runtime.logger.info("replay started", letters=plan.letters, **fields)
        else:
            self._runtime.logger.warning("replay stopped", reason=plan.why, **fields)

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

    async def archived(self, letter_filter: LetterFilter = LetterFilter()) -> "builtins.list[Archived]":  # noqa: B008 - frozen
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

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
    groups_sync = in_sync(groups)
    counts_sync = in_sync(counts)
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
    is_archiving_due_sync = in_sync(is_archiving_due)
    ensure_archive_sync = in_sync(ensure_archive)
    archived_sync = in_sync(archived)
    restore_sync = in_sync(restore)

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
            refused |= {job_id: _changed(job_id) for job_id in ids if job_id not in moved}
        if isinstance(selection, str) and refused:
            raise StepRefused(*refused.values())
        if not dry_run:
            self._report(step, first, count=len(done))
        return BulkResult(done, refused)

    def _redacted(self, step: Step) -> Step:
        """Redact the texts of a step: operators paste the messages of services."""
        redact = self._runtime.redactor
        return replace(
            step,
            reason=redact(step.reason),
            evidence=step.evidence and redact(step.evidence),
            safe=step.safe and redact(step.safe),
            notes=step.notes and redact(step.notes),
        )

    def _report(self, step: Step, first: Letter | None, *, count: int) -> None:
        if first is None:
            return
        self._runtime.metrics.count("letter_steps", count, state=step.to.value)
        self._runtime.logger.info(
            "dead letters updated",
            state=step.to.value,
            letters=count,
            job_id=first.job_id,
            name=first.name,
            queue=first.queue,
            actor=step.actor,
            reason=step.reason,
        )

    async def _pages(self, selection: JobIdOrFilter) -> "AsyncIterator[builtins.list[Letter]]":
        """Yield the selected letters, a page at a time."""
        if isinstance(selection, str):
            yield [await self._store.dead_letters.get(selection)]
            return
        left, before = math.inf if selection.limit is None else selection.limit, selection.before
        while left > 0:
            page = await self._store.dead_letters.find(
                replace(selection, limit=int(min(PAGE, left)), before=before)
            )
            if not page:
                return
            yield page
            left, before = left - len(page), page[-1].job_id


def _cause(cause: str) -> Cause:
    try:
        return Cause(cause)
    except ValueError:
        raise ConfigError(f"{cause!r} is not a cause; use one of: {', '.join(Cause)}") from None


def _changed(job_id: str) -> str:
    return f"the dead letter of job {job_id} has just changed; look at it again"


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
