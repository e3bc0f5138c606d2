"""Replay planner: an operator plans the replay of dead letters, starts it, follows it, and stops it."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from holdfast.core.dead_letters.letter import validate
from holdfast.core.dead_letters.replay_plan import PACE, Plan, PlanCounts, PreflightCheck, start, stop
from holdfast.core.errors import ConfigError
from holdfast.core.strict_json import ensure_storable
from holdfast.engine.dead_letters.letter_selection import JobIdOrFilter, LetterSelection, changed_meanwhile
from holdfast.engine.operations.store_access import in_sync


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


class ReplayPlanner(LetterSelection):
    """The operations on replay plans; workers carry them out."""

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
                    PreflightCheck("workflow", holds=False, detail=changed_meanwhile(letter.job_id))
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

    plan_sync = in_sync(plan)
    replay_sync = in_sync(replay)
    progress_sync = in_sync(progress)
    stop_sync = in_sync(stop)
