"""The releaser: it lets out jobs that are held for a provider, as fast as the provider can take them, and those that
wait for a worker which knows their name, if this one does."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from holdfast.core.breakers import calls_for_backup, lets_through, next_move
from holdfast.core.errors import StoreUnavailable
from holdfast.core.limits import OUT_EVERY
from holdfast.core.providers import ProviderState, awaited_name, awaited_queue, limited_key, provider_of
from holdfast.engine.availability import StoreAvailability
from holdfast.engine.exchanging import Read, Told
from holdfast.engine.lines import Line
from holdfast.engine.options import WorkerOptions
from holdfast.engine.permits import Permits
from holdfast.engine.registry import Registry
from holdfast.ports import Dice, Journal, Store

BATCH = 1_000

SHORTEST_REST = 0.1
"""Seconds between two looks at least."""


class Releaser:
    """Lets held jobs out. Every worker has one; whoever notes the next step first in the provider's state takes it.

    A worker that dies between that note and the letting out costs the jobs one step: the next one is theirs.
    """

    def __init__(
        self,
        store: Store,
        permits: Permits,
        registry: Registry,
        options: WorkerOptions,
        news: asyncio.Event,
        *,
        dice: Dice,
        journal: Journal,
        free_slots: Callable[[], int],
    ) -> None:
        self._store = store
        self._permits = permits
        self._registry = registry
        self._options = options
        self._news = news
        self._dice = dice
        self._journal = journal
        self._free_slots = free_slots
        self._lacks_slots = False
        self._sooner = asyncio.Event()

    async def run(self, availability: StoreAvailability) -> None:
        """Look when the next step is due, and at every poll."""
        while True:
            try:
                pause = await self.run_once()
                availability.answered("releaser")
            except StoreUnavailable as error:
                availability.failed("releaser", error)
                pause = self._options.poll.total_seconds()
            await self._rest(pause)

    async def run_once(self) -> float:
        """Let out whoever may go; return the seconds until it is worth looking again."""
        self._sooner.clear()
        self._lacks_slots = False
        pauses = [self._options.poll.total_seconds() * (0.5 + self._dice.roll())]
        holders: defaultdict[str, list[str]] = defaultdict(list)
        for holder in await self._store.holders():
            name = awaited_name(holder)
            if name is None:
                holders[provider_of(holder)].append(holder)
            elif self._can_run(name, awaited_queue(holder)) and await self._release_known(name, holder):
                pauses.append(SHORTEST_REST)
        lines = await self._informed({*holders, *self._registry.providers})
        for line in lines:
            line.held_keys = _keys(holders[line.name])
            if holders[line.name]:
                pauses.append(await self._let_out(line, holders[line.name]))
            elif line.state.gate.ramp is not None:
                await line.nobody_is_held()
        return min(pauses)

    def _can_run(self, name: str, queue: str | None) -> bool:
        """Whether this worker knows the name and serves the queue; else released jobs would wait, or be held again."""
        return self._registry.get(name) is not None and (queue is None or queue in self._options.queues)

    async def _release_known(self, name: str, holder: str) -> bool:
        """Release jobs that waited for a worker which knows their name; return whether there may be more to release now.

        Only workers that know the name claim them from now on. The others step over them in the queue, so no more
        go out than this worker can take. One goes out even if all slots are busy: ready jobs that are never at an
        end would else keep the held ones waiting for ever.
        """
        free = self._free_slots()
        limit = max(1, min(free, BATCH))
        jobs = await self._store.let_out(holder, limit=limit)
        if jobs:
            self._news.set()
            self._journal.info("jobs released", name=name, queue=awaited_queue(holder), jobs=jobs)
        if free < 1:
            self._lacks_slots = True
            return False
        return jobs == limit

    async def _informed(self, names: set[str]) -> list[Line]:
        """Give the lines of these providers, which know by now how each of them stands."""
        if not names:
            return []
        asked_at = asyncio.get_running_loop().time()
        now, rows = await self._store.providers(sorted(names))
        lines = [self._permits.line_of(name) for name in sorted(names)]
        for line in lines:
            row = rows.get(line.name)
            if row is None:
                line.learn(Read(ProviderState(), 0, now, asked_at))
            else:
                line.learn(Read(ProviderState.load(row.state), row.version, now, asked_at))
        return lines

    async def _let_out(self, line: Line, holders: Sequence[str]) -> float:
        """Take the next step of a release, if it is time for it; return the seconds until there may be another."""
        spec = self._registry.providers.get(line.name)

        has_backup = self._has_backup(line.name)

        def step(state: ProviderState, now: float) -> tuple[ProviderState, dict[str, int], Sequence[Told]]:
            elsewhere = calls_for_backup(state.gate) and has_backup
            after, out = state.let_out(line.name, spec, holders, now, most=BATCH, elsewhere=elsewhere)
            return after, out, ()

        out = await line.change(step, keys=lambda state: state.keys_to_let_out(line.name, spec, holders))
        jobs = {holder: await self._make_ready(holder, size) for holder, size in out.items()}
        # Of whom everybody is out, newcomers need not stand behind anybody.
        line.held_keys -= _keys(holder for holder, size in out.items() if jobs[holder] < size)
        if any(jobs.values()):
            self._news.set()
            self._journal.info("let out", provider=line.name, jobs=sum(jobs.values()))
        if jobs.get(line.name, 0) < out.get(line.name, 0) and lets_through(line.state.gate):
            # Everybody is out. Whoever has come meanwhile, and was held, would else prolong it without end.
            await line.nobody_is_held()
        if holders != [line.name] or has_backup:
            return OUT_EVERY
        soon = next_move(line.state.gate, line.now)
        return self._options.poll.total_seconds() if soon is None else max(soon, OUT_EVERY)

    async def _make_ready(self, holder: str, size: int) -> int:
        """Let out up to *size* jobs, a batch at a time; return how many there were."""
        done = 0
        while done < size:
            wanted = min(size - done, BATCH)
            count = await self._store.let_out(holder, limit=wanted)
            done += count
            if count < wanted:
                break
        return done

    def _has_backup(self, name: str) -> bool:
        """Whether a backup of the provider takes calls now, as far as is known."""
        return any(self._permits.line(backup).takes_calls for backup in self._registry.backups_of(name))

    def hurry(self) -> None:
        """Look again soon: a gate has changed, or a limit has room."""
        self._sooner.set()

    def slot_freed(self) -> None:
        """Look again soon if jobs of known names are held that found no free slot."""
        if self._lacks_slots:
            self._sooner.set()

    async def _rest(self, pause: float) -> None:
        await asyncio.sleep(min(pause, SHORTEST_REST))  # however often somebody hurries it
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._sooner.wait()


def _keys(holders: Iterable[str]) -> set[str]:
    """Name those for whose limits jobs are held."""
    return {key for holder in holders if (key := limited_key(holder)) is not None}
