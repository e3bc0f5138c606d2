"""The operator's desk: what a person does with dead letters, one at a time or many by a filter.

A step that one letter does not allow is refused with an error; among many, those are told apart and the others go on.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.core.errors import ConfigError, StepRefused
from holdfast.core.letters import (
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
from holdfast.core.replays import PACE, Check, Plan, Standing, start, stop
from holdfast.core.stages import StageRow, StageStatus
from holdfast.engine.archivist import Archivist
from holdfast.engine.dry_run import DryRun, read_jobs
from holdfast.engine.parts import Parts
from holdfast.engine.restoring import Archived, Restorer, Told

PAGE = 500
"""Letters that are read, or moved, together."""

Wanted = str | LetterFilter
"""One letter, by its job's id, or all that a filter finds."""


class Moved(NamedTuple):
    """Which letters took a step, and why others did not."""

    done: list[str]
    refused: dict[str, str]


class StageTries(NamedTuple):
    """What is known of one stage of a failed job."""

    stage: str
    status: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Dossier:
    """All there is to know about one letter."""

    letter: Letter
    steps: list[LetterStep]
    stages: list[StageTries]
    payload_hash: str

    @property
    def sanitized_context(self) -> dict[str, Any]:
        """What is known around the failure, with the attempts of each stage and a keyed hash of the arguments."""
        attempts = {each.stage: each.attempts for each in self.stages}
        return {**self.letter.sanitized_context, "attempts": attempts, "payload_hash": self.payload_hash}


class Planned(NamedTuple):
    """What a dry run found, letter by letter; *token* is that of the plan, if there is anything to replay."""

    token: str | None
    ready: list[str]
    checks: dict[str, list[Check]]

    @property
    def refused(self) -> dict[str, str]:
        """Say why letters are not part of the plan."""
        told = {
            job_id: "; ".join(check.told for check in found if not check.holds)
            for job_id, found in self.checks.items()
        }
        return {job_id: why for job_id, why in told.items() if why}


class Progress(NamedTuple):
    """How far a plan has come."""

    plan: Plan
    standing: Standing


class Desk:
    """What an operator does with dead letters."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._archivist = Archivist(parts)
        self._restorer = Restorer(parts)
        self._dry_run = DryRun(parts)

    async def letters(self, wanted: LetterFilter) -> list[Letter]:
        """List letters, the newest job first."""
        return await self._store.letters(wanted)

    async def groups(self, wanted: LetterFilter) -> list[Group]:
        """Gather letters by fingerprint, the most recent first."""
        return await self._store.letter_groups(wanted)

    async def show(self, job_id: str, *, owner: str | None = None) -> Dossier:
        """Tell all about one letter. Raises `LetterNotFound`."""
        letter = await self._store.letter(job_id, owner=owner)
        [job] = await read_jobs(self._store, [letter.job_id])
        rows = await self._store.stages([letter.job_id])
        return Dossier(
            letter,
            await self._store.letter_steps(letter.job_id),
            _tries(letter, rows),
            "" if job is None else self._parts.redactor.payload_hash(job.args),
        )

    async def triage(
        self, wanted: Wanted, cause: Cause, *, actor: str, reason: str = "", dry_run: bool = False
    ) -> Moved:
        """Put on record why jobs failed."""
        return await self._step(wanted, triage(cause, actor=actor, reason=reason), dry_run=dry_run)

    async def remediate(
        self,
        wanted: Wanted,
        evidence: str,
        *,
        actor: str,
        reason: str = "",
        correct: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Moved:
        """Put on record what shows that the cause is gone; *correct* gives one job other arguments, by name."""
        step = remediate(evidence, actor=actor, reason=reason)
        if correct is None:
            return await self._step(wanted, step, dry_run=dry_run)
        if not isinstance(wanted, str):
            raise ConfigError("arguments are corrected for one job at a time; name it by its id")
        letter = await self._store.letter(wanted)
        args = await self._dry_run.corrected(letter, correct)
        recorded = replace(step, meta={"corrected": sorted(correct)})
        return await self._step(letter.job_id, recorded, dry_run=dry_run, args=args)

    async def close(self, wanted: Wanted, notes: str, *, actor: str, dry_run: bool = False) -> Moved:
        """Put on record how jobs that went on to complete were repaired."""
        return await self._step(wanted, close(notes, actor=actor), dry_run=dry_run)

    async def discard(self, wanted: Wanted, reason: str, *, actor: str, dry_run: bool = False) -> Moved:
        """Give jobs up."""
        return await self._step(wanted, discard(reason, actor=actor), dry_run=dry_run)

    async def plan(
        self,
        wanted: Wanted,
        *,
        safe: str,
        actor: str,
        restart: bool = False,
        canary: int = 1,
        pace: float = PACE,
        dry_run: bool = False,
    ) -> Planned:
        """Find out what can be replayed, and plan that; what cannot is left as it is.

        *safe* says why it does no harm if something takes effect twice. *canary* letters go first, the others follow
        them with *pace* letters a second. With *restart* finished stages run again.
        """
        draft = self._draft(actor=actor, restart=restart, canary=canary, pace=pace)
        step = self._redacted(validate(safe, draft.token, actor=actor))
        looked_at = [
            each
            async for page in self._pages(wanted)
            for each in await self._dry_run.check(page, restart=restart)
        ]
        found = {letter.job_id: its_checks for letter, its_checks in looked_at}
        ready = [letter for letter, its_checks in looked_at if all(check.holds for check in its_checks)]
        if dry_run or not ready:
            return Planned(None, [letter.job_id for letter in ready], found)
        now = await self._store.now()
        plan = replace(draft, made_at=now.timestamp(), letters=len(ready))
        moved = await self._store.move_letters([letter.seen for letter in ready], [step], plan=plan)
        self._tell(step, next((letter for letter in ready if letter.job_id in moved), None), count=len(moved))
        for letter in ready:
            if letter.job_id not in moved:
                found[letter.job_id].append(Check("workflow", holds=False, told=_changed(letter.job_id)))
        # A plan that somebody has taken a letter from is stale: there is no use in its token.
        return Planned(plan.token if len(moved) == len(ready) else None, moved, found)

    def _draft(self, *, actor: str, restart: bool, canary: int, pace: float) -> Plan:
        """Begin a plan, before anything is looked at: whoever asks for an impossible one is told at once."""
        try:
            return Plan(
                token=self._parts.ids.job_id(),
                actor=actor,
                made_at=0.0,
                letters=0,
                restart=restart,
                code_version=self._parts.letters.code_version,
                canary=canary,
                pace=pace,
            )
        except ValueError as refused:
            raise ConfigError(str(refused)) from None

    async def replay(self, token: str, *, actor: str) -> Progress:
        """Let a plan begin; workers do the rest. Said again, it changes nothing. Raises `PlanStale`."""
        version = self._parts.letters.code_version
        return await self._change(
            token,
            lambda plan, standing, now: start(plan, standing, now, actor=actor, code_version=version),
        )

    async def stop(self, token: str, *, actor: str, reason: str = "") -> Progress:
        """Let no more letters of a plan follow; jobs that are under way go on."""
        reason = self._parts.redactor(reason)
        return await self._change(token, lambda plan, *_: stop(plan, actor=actor, reason=reason))

    async def progress(self, token: str) -> Progress:
        """Tell how far a plan has come. Raises `PlanStale` if there is none."""
        return await self._change(token, lambda plan, *_: plan)

    async def _change(self, token: str, decide: Callable[[Plan, Standing, float], Plan]) -> Progress:
        """Make of a plan what *decide* makes of it; that is asked again if somebody else was quicker."""
        while True:
            row = await self._store.plan(token)
            plan = Plan.load(row.state)
            now, standing = await self._store.standing(token)
            changed = decide(plan, standing, now)
            if changed == plan:
                return Progress(plan, standing)
            if await self._store.advance_plan(row, changed) is not None:
                self._tell_change(changed)
                return Progress(changed, standing)

    def _tell_change(self, plan: Plan) -> None:
        fields = {"plan": plan.token, "actor": plan.actor}
        if plan.is_running:
            self._parts.journal.info("replay began", letters=plan.letters, **fields)
        else:
            self._parts.journal.warning("replay stopped", reason=plan.why, **fields)

    async def archive(
        self, *, older_than: timedelta | None = None, beyond: int | None = None, dry_run: bool = False
    ) -> int:
        """Archive letters now, by the retention or by what is given, and delete them; count them."""
        move = self._archivist.due if dry_run else self._archivist.archive
        return await move(older_than=older_than, beyond=beyond)

    async def archived(self, wanted: LetterFilter) -> list[Archived]:
        """List what is in the archive, file by file; without a limit all of it."""
        return await self._restorer.archived(wanted)

    async def restore(self, wanted: Wanted, *, dry_run: bool = False, told: Told | None = None) -> Moved:
        """Bring letters back from the archive, with their jobs. Raises why not, if one was meant and is not back."""
        meant = LetterFilter(job_ids=(wanted,)) if isinstance(wanted, str) else wanted
        done, refused = await self._restorer.restore(meant, dry_run=dry_run, told=told)
        if isinstance(wanted, str):
            for error in refused.values():
                raise error
        return Moved(done, {job_id: str(error) for job_id, error in refused.items()})

    async def _step(self, wanted: Wanted, step: Step, *, dry_run: bool, args: str | None = None) -> Moved:
        """Take a step with each letter that allows it. Raises `StepRefused` if one was meant, and does not."""
        step = self._redacted(step)
        done: list[str] = []
        first: Letter | None = None
        refused: dict[str, str] = {}
        async for page in self._pages(wanted):
            refused |= {letter.job_id: why for letter in page if (why := refusal(letter, step))}
            seen = [letter.seen for letter in page if letter.job_id not in refused]
            ids = [job_id for job_id, _ in seen]
            moved = ids if dry_run or not seen else await self._store.move_letters(seen, [step], args=args)
            done += moved
            first = first or next((letter for letter in page if letter.job_id in moved), None)
            refused |= {job_id: _changed(job_id) for job_id in ids if job_id not in moved}
        if isinstance(wanted, str) and refused:
            raise StepRefused(*refused.values())
        if not dry_run:
            self._tell(step, first, count=len(done))
        return Moved(done, refused)

    def _redacted(self, step: Step) -> Step:
        """Take out of somebody's words what nobody should read: people paste what a service has said."""
        redact = self._parts.redactor
        return replace(
            step,
            reason=redact(step.reason),
            evidence=step.evidence and redact(step.evidence),
            safe=step.safe and redact(step.safe),
            notes=step.notes and redact(step.notes),
        )

    def _tell(self, step: Step, first: Letter | None, *, count: int) -> None:
        if first is None:
            return
        self._parts.metrics.count("letter_steps", count, state=step.to.value)
        self._parts.journal.info(
            "letters moved",
            state=step.to.value,
            letters=count,
            job_id=first.job_id,
            name=first.name,
            queue=first.queue,
            actor=step.actor,
            reason=step.reason,
        )

    async def _pages(self, wanted: Wanted) -> AsyncIterator[list[Letter]]:
        """Read all letters that are meant, a page at a time."""
        if isinstance(wanted, str):
            yield [await self._store.letter(wanted)]
            return
        left, before = math.inf if wanted.limit is None else wanted.limit, wanted.before
        while left > 0:
            page = await self._store.letters(replace(wanted, limit=int(min(PAGE, left)), before=before))
            if not page:
                return
            yield page
            left, before = left - len(page), page[-1].job_id


def _changed(job_id: str) -> str:
    return f"the dead letter of job {job_id} has just changed; look at it again"


def _tries(letter: Letter, rows: Sequence[StageRow]) -> list[StageTries]:
    """Tell how many attempts each stage had; a job without stages is one stage of its own."""
    tries = [StageTries(str(row.key), row.status.value, row.attempt) for row in rows if not row.key.is_wait]
    if letter.stage is None or letter.stage not in {each.stage for each in tries}:
        tries.append(StageTries(letter.stage or "(the job itself)", StageStatus.FAILED.value, letter.attempt))
    return tries
