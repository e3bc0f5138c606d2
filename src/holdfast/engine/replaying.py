"""The replayer: it moves plans on, a canary first and the others at their pace."""

import asyncio

from holdfast.core.replays import BEAT, Phase, Plan, next_move
from holdfast.engine.parts import Parts
from holdfast.ports.letters import PlanRow


class Replayer:
    """Moves plans on. Every worker has one; whoever writes the next step first has taken it."""

    def __init__(self, parts: Parts, news: asyncio.Event) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._metrics = parts.metrics
        self._dice = parts.dice
        self._idle = parts.letters.looks_every.total_seconds()
        self._news = news

    async def run_once(self) -> float:
        """Take the next step of each plan that has begun; return the seconds until there may be another."""
        rows = await self._store.running_plans()
        for row in rows:
            await self._advance(row)
        return min(BEAT, self._idle) if rows else self._idle * (0.5 + self._dice.roll())

    async def _advance(self, row: PlanRow) -> None:
        try:
            plan = Plan.load(row.state)
        except ValueError:
            # A newer version has written it, and its workers move it on.
            self._journal.warning("plan not understood", plan=row.token)
            return
        now, standing = await self._store.standing(plan.token)
        move = next_move(plan, standing, now)
        if move.plan == plan and not move.take:
            return
        jobs = await self._store.advance_plan(row, move.plan, take=move.take)
        if jobs is not None:
            self._tell(plan, move.plan, len(jobs))

    def _tell(self, before: Plan, after: Plan, jobs: int) -> None:
        fields = {"plan": after.token, "actor": after.actor}
        if jobs:
            self._news.set()
            self._metrics.count("letters_replayed", jobs)
            self._journal.info("replayed", jobs=jobs, **fields)
        if after.phase is Phase.STOPPED:
            self._journal.warning("replay stopped", reason=after.why, **fields)
        elif after.phase is Phase.DONE:
            self._journal.info("replay done", **fields)
        elif after.phase is not before.phase:
            self._journal.info("canary completed", **fields)
