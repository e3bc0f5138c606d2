"""Operators: they look after dead letters, in the right order and in any other, twice, and two at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.core.dead_letters.letter import Cause, LetterFilter, LetterState
from holdfast.core.errors import ArchiveDamaged, ArchiveUnavailable
from holdfast.errors import JobNotFound, StateRefused, StoreUnavailable
from tests.simulation.processes import Injected

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from holdfast import Holdfast
    from tests.simulation.dead_letter_oracle import DeadLetterOracle
    from tests.simulation.people import Memory

ALL = LetterFilter(limit=1_000)
REFUSALS = (StateRefused, JobNotFound, ArchiveUnavailable)
"""What an operator takes for an answer."""


class Operators:
    """One process of operators, doing one thing after another by chance."""

    def __init__(
        self,
        hold: Holdfast,
        memory: Memory,
        chance: random.Random,
        dead_letter_oracle: DeadLetterOracle,
        complain: Callable[[str], None],
    ) -> None:
        self._hold = hold
        self._dead = hold.dead_letters
        self._memory = memory
        self._chance = chance
        self._oracle = dead_letter_oracle
        self._complain = complain

    async def live(self, stop: asyncio.Event) -> None:
        """Act until *stop* is set. A cancellation is meant for the call that it meets, and does not end this."""
        async with self._hold:
            while not stop.is_set():
                await asyncio.sleep(self._chance.expovariate(1.0))
                async with asyncio.TaskGroup() as together:
                    for _ in range(self._chance.choice((1, 1, 2))):
                        together.create_task(self._act(), name="an operator's deed")

    async def repair_all(self) -> None:
        """Do all that can be done, in order, and go; jobs whose code is wrong fail again."""
        async with self._hold:
            for letter in await self._dead.list(ALL):
                if letter.state is LetterState.VERIFIED:
                    await self._dead.close(letter.job_id, "it went well", actor="ann")
            await self._dead.triage(ALL, Cause.TRANSIENT, actor="ann")
            await self._dead.remediate(ALL, "the faults have stopped", actor="ann")
            planned = await self._dead.plan(ALL, safe="every call has a key", actor="ann", pace=5)
            if planned.token is not None:
                await self._begin(planned.token)

    async def restore_all(self, job_ids: list[str]) -> None:
        """Bring back what the archive has, one letter at a time."""
        async with self._hold:
            for job_id in job_ids:
                await self._dead.restore(
                    LetterFilter(job_ids=(job_id,))
                )  # a letter that is refused is still away

    async def _act(self) -> None:
        deeds: list[Callable[[], Awaitable[Any]]] = [
            *[self._triage] * 4,
            *[self._remediate] * 4,
            *[self._plan] * 5,
            *[self._replay] * 3,
            self._stop,
            self._discard,
            *[self._close] * 2,
            self._look,
            *[self._archive, self._archive, self._restore, self._restore] * self._memory.archives,
        ]
        try:
            await self._chance.choice(deeds)()
        except REFUSALS:
            return
        except (StoreUnavailable, Injected):
            return  # nothing was promised

    def _selection(self) -> str | LetterFilter:
        """Select one job, whether or not it has a letter, or some letters."""
        known = list(self._memory.acknowledged)
        if known and self._chance.random() < 0.3:
            return self._chance.choice(known)
        names = (None, None, None, "plain", "order", "doomed")  # some others are replayed automatically
        return LetterFilter(name=self._chance.choice(names), limit=self._chance.choice((3, 50)))

    async def _triage(self) -> None:
        cause = self._chance.choice(list(Cause))
        await self._dead.triage(self._selection(), cause, actor=self._who())

    async def _remediate(self) -> None:
        letters = await self._dead.list(LetterFilter(name="doomed", limit=1))
        if letters and self._chance.random() < 0.2:
            args = {"number": self._chance.randrange(100)}
            await self._dead.remediate(letters[0].job_id, "a typing error", actor=self._who(), correct=args)
        else:
            await self._dead.remediate(self._selection(), "it works for me", actor=self._who())

    async def _plan(self) -> None:
        planned = await self._dead.plan(
            self._selection(),
            safe="every call has a key",
            actor=self._who(),
            restart=self._chance.random() < 0.2,
            canary=self._chance.choice((0, 1, 1, 2)),
            pace=self._chance.choice((0.5, 2.0, 20.0)),
        )
        if planned.token is None:
            return
        self._memory.plans.append(planned.token)
        if self._chance.random() < 0.7:
            await self._begin(planned.token)

    async def _replay(self) -> None:
        if self._memory.plans:
            await self._begin(self._chance.choice(self._memory.plans[-3:]))

    async def _begin(self, token: str) -> None:
        stale = self._oracle.is_stale(token)
        progress = await self._dead.replay(token, actor=self._who())
        if stale:
            self._complain(f"a plan began that was stale: {progress}")

    async def _stop(self) -> None:
        if self._memory.plans:
            await self._dead.stop(self._chance.choice(self._memory.plans), actor=self._who())

    async def _discard(self) -> None:
        for letter in (await self._dead.list(ALL))[:1]:
            await self._dead.discard(letter.job_id, "it is not needed any more", actor=self._who())

    async def _close(self) -> None:
        await self._dead.close(self._selection(), "it went well", actor=self._who())

    async def _look(self) -> None:
        await self._dead.groups()
        for token in self._memory.plans[-1:]:
            await self._dead.progress(token)
        for letter in (await self._dead.list())[:1]:
            await self._dead.show(letter.job_id)

    async def _archive(self) -> None:
        try:
            if self._chance.random() < 0.5:
                await self._dead.archive(older_than=self._chance.choice(("5s", "20s")))
            else:
                await self._dead.archive(beyond=self._chance.choice((1, 3)))
        except ArchiveDamaged:
            return  # it was read back, and is not what was written: nothing was deleted

    async def _restore(self) -> None:
        if self._oracle.away:
            await self._dead.restore(self._chance.choice(sorted(self._oracle.away)))

    def _who(self) -> str:
        return self._chance.choice(("ann", "bob"))
