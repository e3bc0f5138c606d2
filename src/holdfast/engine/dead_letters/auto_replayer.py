"""Automatic replay, for jobs that allow it: once per letter, within a time limit, and recorded like any other."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from holdfast.core.dead_letters.letter import Cause, Letter, remediate, triage, validate
from holdfast.core.dead_letters.replay_plan import (
    AUTOMATIC,
    NOT_LATER,
    AutoReplay,
    Phase,
    Plan,
    is_due,
    is_in_time,
)
from holdfast.core.durations import duration
from holdfast.engine.dead_letters.preflight import read_jobs
from holdfast.engine.providers.availability import unavailable_providers
from holdfast.engine.service import OptionalService

EVERY = 10.0
"""Average seconds between two runs."""

PAGE = 100
"""Letters that are read together."""


class AutoReplayer(OptionalService):
    """Makes replay plans for letters whose job allows automatic replay; the replayer carries them out."""

    name = "automatic replayer"

    async def run_once(self) -> float:
        """Plan the replay of new letters that are due; return the seconds until the next run."""
        policies = {
            name: spec.auto_replay
            for spec in self._runtime.registry
            if spec.auto_replay is not None
            for name in (spec.name, *spec.aliases)
        }
        # While an earlier automatic plan is running there is no other: each would have a pace of its own.
        if policies and all(
            Plan.load(row.state).actor != AUTOMATIC for row in await self._store.replay_plans.running()
        ):
            for name, policy in policies.items():
                # The first letters that are due; the others follow when that plan has ended.
                async for page in self._due_letters(name, policy):
                    if await self._plan_replay(page, policy):
                        break
        return self._jittered(EVERY)

    async def _due_letters(self, name: str, policy: AutoReplay) -> AsyncIterator[list[Letter]]:
        """Yield pages of letters that are due, the oldest first; those past the time limit are never read."""
        after = duration(policy.after)
        ages, last = (after, after + NOT_LATER), None
        while page := await self._store.dead_letters.find_replayable(name, ages=ages, limit=PAGE, after=last):
            yield page
            last = page[-1]

    async def _plan_replay(self, letters: Sequence[Letter], policy: AutoReplay) -> bool:
        """Make a plan per provider for those of *letters* that can be replayed now; return whether there is one."""
        now = await self._store.now()
        due = [letter for letter in letters if is_due(letter, policy, now)]
        unavailable = await unavailable_providers(self._store, [letter.provider for letter in due])
        callable_now = [letter for letter in due if letter.provider not in unavailable]
        jobs = await read_jobs(self._store, [letter.job_id for letter in callable_now])
        ready: defaultdict[str, list[Letter]] = defaultdict(list)
        for letter, job in zip(callable_now, jobs, strict=True):
            if job is not None and is_in_time(job.deadline_at, now):
                ready[letter.provider].append(letter)
        for provider, those in ready.items():
            await self._begin(provider, those, policy, now.timestamp())
        return bool(ready)

    async def _begin(self, provider: str, letters: Sequence[Letter], policy: AutoReplay, now: float) -> None:
        """Take all steps up to the replay in one write: a worker that dies here has taken none of them."""
        plan = Plan(
            token=self._runtime.ids.job_id(),
            actor=AUTOMATIC,
            made_at=now,
            letters=len(letters),
            same_deadline=True,
            code_version=self._runtime.letters.code_version,
            canary=0,
            phase=Phase.PACED,
            next_at=now,
        )
        evidence = f"provider {provider!r} lets calls through" if provider else "the failure was transient"
        steps = [
            triage(Cause.TRANSIENT, actor=AUTOMATIC, reason="the failure is of a class that is retried"),
            remediate(evidence, actor=AUTOMATIC),
            validate(policy.safe, plan.token, actor=AUTOMATIC),
        ]
        moved = await self._store.dead_letters.move([letter.seen for letter in letters], steps, plan=plan)
        if moved:
            first = next(letter for letter in letters if letter.job_id == moved[0])
            self._runtime.logger.info(
                "automatic replay started",
                plan=plan.token,
                letters=len(moved),
                job_id=first.job_id,
                name=first.name,
                queue=first.queue,
            )
