"""Replays without a person, for jobs that have leave for it: once each, in time, and on record like any other."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from holdfast.core.durations import duration
from holdfast.core.letters import Cause, Letter, remediate, triage, validate
from holdfast.core.replays import AUTOMATIC, NOT_LATER, AutoReplay, Phase, Plan, is_due, is_in_time
from holdfast.engine.dry_run import read_jobs
from holdfast.engine.gates import shut_providers
from holdfast.engine.parts import Parts

EVERY = 10.0
"""Seconds between two looks."""

PAGE = 100
"""Letters that are looked at together."""


class AutoReplayer:
    """Plans the replay of letters whose job may go on by itself; the replayer does the rest."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store

    async def run_once(self) -> float:
        """Look at the new letters of jobs that have leave; return the seconds until it is worth looking again."""
        policies = {
            name: spec.auto_replay
            for spec in self._parts.registry
            if spec.auto_replay is not None
            for name in (spec.name, *spec.aliases)
        }
        if policies and not await self._is_at_it():
            for name, policy in policies.items():
                await self._look(name, policy)
        return EVERY * (0.5 + self._parts.dice.roll())

    async def _is_at_it(self) -> bool:
        """Whether replays of before still go on: plans side by side would each keep a pace of their own."""
        return any(Plan.load(row.state).actor == AUTOMATIC for row in await self._store.running_plans())

    async def _look(self, name: str, policy: AutoReplay) -> None:
        """Plan the replay of some letters that are due; the others follow when that is over."""
        async for page in self._due_letters(name, policy):
            if await self._consider(page, policy):
                return

    async def _due_letters(self, name: str, policy: AutoReplay) -> AsyncIterator[list[Letter]]:
        """Read what is due, the oldest first, and nothing that never will be: that stays for as long as letters do."""
        after = duration(policy.after)
        ages, last = (after, after + NOT_LATER), None
        while page := await self._store.replayable_letters(name, ages=ages, limit=PAGE, after=last):
            yield page
            last = page[-1]

    async def _consider(self, letters: Sequence[Letter], policy: AutoReplay) -> bool:
        now = await self._store.now()
        due = [letter for letter in letters if is_due(letter, policy, now)]
        shut = await shut_providers(self._store, [letter.provider for letter in due])
        let_through = [letter for letter in due if letter.provider not in shut]
        jobs = await read_jobs(self._store, [letter.job_id for letter in let_through])
        ready: defaultdict[str, list[Letter]] = defaultdict(list)
        for letter, job in zip(let_through, jobs, strict=True):
            if job is not None and is_in_time(job.deadline_at, now):
                ready[letter.provider].append(letter)
        for provider, those in ready.items():
            await self._begin(provider, those, policy, now.timestamp())
        return bool(ready)

    async def _begin(self, provider: str, letters: Sequence[Letter], policy: AutoReplay, now: float) -> None:
        """Take all steps on the way to a replay at once: a worker that dies here has taken none of them."""
        plan = Plan(
            token=self._parts.ids.job_id(),
            actor=AUTOMATIC,
            made_at=now,
            letters=len(letters),
            same_deadline=True,
            code_version=self._parts.letters.code_version,
            canary=0,
            phase=Phase.PACED,
            next_at=now,
        )
        evidence = (
            f"provider {provider!r} lets calls through" if provider else "the failure was one that passes"
        )
        steps = [
            triage(Cause.TRANSIENT, actor=AUTOMATIC, reason="the failure is of a class that is retried"),
            remediate(evidence, actor=AUTOMATIC),
            validate(policy.safe, plan.token, actor=AUTOMATIC),
        ]
        moved = await self._store.move_letters([letter.seen for letter in letters], steps, plan=plan)
        if moved:
            first = next(letter for letter in letters if letter.job_id == moved[0])
            self._parts.journal.info(
                "replay by itself",
                plan=plan.token,
                letters=len(moved),
                job_id=first.job_id,
                name=first.name,
                queue=first.queue,
            )
