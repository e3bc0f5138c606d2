"""The replayer: it carries out replay plans, the canary first and the others at the plan's pace."""

from collections.abc import Callable

from holdfast.core.dead_letters.replay_plan import BATCH_INTERVAL, Phase, Plan, next_advance
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import OptionalService
from holdfast.ports.dead_letters import PlanRow


class Replayer(OptionalService):
    """Advances replay plans. Every worker runs one; the first to write the next step takes it."""

    name = "replayer"

    def __init__(self, runtime: Runtime, wake_worker: Callable[[], None]) -> None:
        super().__init__(runtime)
        self._metrics = runtime.metrics
        self._idle = runtime.letters.poll_interval.total_seconds()
        self._wake_worker = wake_worker

    async def run_once(self) -> float:
        """Take the next step of each plan that has begun; return the seconds until there may be another."""
        rows = await self._store.replay_plans.running()
        for row in rows:
            await self._advance(row)
        return min(BATCH_INTERVAL, self._idle) if rows else self._jittered(self._idle)

    async def _advance(self, row: PlanRow) -> None:
        try:
            plan = Plan.load(row.state)
        except ValueError:
            # A newer version has written it, and its workers carry it out.
            self._logger.warning("replay plan not readable", plan=row.token)
            return
        now, counts = await self._store.replay_plans.counts(plan.token)
        advance = next_advance(plan, counts, now)
        if advance.plan == plan and not advance.take:
            return
        jobs = await self._store.replay_plans.advance(row, advance.plan, take=advance.take)
        if jobs is not None:
            self._report(plan, advance.plan, len(jobs))

    def _report(self, before: Plan, after: Plan, jobs: int) -> None:
        fields = {"plan": after.token, "actor": after.actor}
        if jobs:
            self._wake_worker()
            self._metrics.count("letters_replayed", jobs)
            self._logger.info("dead letters replayed", jobs=jobs, **fields)
        if after.phase is Phase.STOPPED:
            self._logger.warning("replay stopped", reason=after.why, **fields)
        elif after.phase is Phase.DONE:
            self._logger.info("replay completed", **fields)
        elif after.phase is not before.phase:
            self._logger.info("canary completed", **fields)
