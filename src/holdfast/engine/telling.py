"""The teller: it tells of tickets, to the log and to whoever an application has named."""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Sequence, Set
from datetime import datetime, timedelta

from holdfast.core.exhaustion import LEVELS, USUAL, Follow, Table
from holdfast.core.letters import LetterFilter
from holdfast.core.tickets import Ticket, TicketKind, of_letter
from holdfast.engine.options import Hook
from holdfast.engine.parts import Parts
from holdfast.ports.letters import TicketRow

BATCH = 10
"""Tickets that are taken together: few enough that all of them can be told within their lease, though hooks hang."""

LEASE = timedelta(seconds=60)
"""How long whoever has taken tickets has for telling them; then somebody else does it."""

PATIENCE = 5.0
"""Seconds that hooks may take for one ticket, which is told to all of them at once."""

IN_TIME = LEASE.total_seconds() - 2 * PATIENCE
"""Seconds after which no ticket is begun any more: what hooks may take is left of the lease, and as much for the store."""

QUIET = timedelta(days=1)
"""How long a group is not told of again, where one ticket stands for all letters of a group."""

REMEMBERED = 10_000
"""Tickets that somebody has not heard, of which a worker remembers who has."""


class Heard:
    """Who has heard which ticket, of the latest so many: nobody is called again because somebody else was deaf.

    It is forgotten with its process. Whoever tells the ticket then tells it to everybody.
    """

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._by_ticket: dict[tuple[str, datetime], set[int]] = {}

    def knows(self, hook: Hook, ticket: Ticket) -> bool:
        # By its time, too: a job whose letter was deleted, and that fails again, has a ticket of the same name.
        return id(hook) in self._by_ticket.get((ticket.id, ticket.raised_at), ())

    def note(self, hook: Hook, ticket: Ticket) -> None:
        self._by_ticket.setdefault((ticket.id, ticket.raised_at), set()).add(id(hook))
        if len(self._by_ticket) > self._size:
            del self._by_ticket[next(iter(self._by_ticket))]

    def forget(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            self._by_ticket.pop((ticket.id, ticket.raised_at), None)


class Teller:
    """Tells tickets. Every worker has one; a ticket is taken by one at a time, and told at least once."""

    def __init__(self, parts: Parts, *, patience: float = PATIENCE) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._metrics = parts.metrics
        self._dice = parts.dice
        self._clock = parts.clock
        self._executor = parts.executor
        self._options = parts.letters
        self._describe = parts.describe
        self._patience = patience
        self._registry = parts.registry
        self._hanging: set[int] = set()
        self._heard = Heard()

    async def run_once(self) -> float:
        """Tell what is due; return the seconds until it is worth looking again."""
        until = self._clock.monotonic() + IN_TIME  # from before the lease begins
        rows = await self._store.take_tickets(limit=BATCH, lease=LEASE)
        if rows:
            logged = {row.id for row in rows if row.logged}
            await self._tell_all(await self._worded(rows), logged, until=until)
        if len(rows) == BATCH:
            return 0
        return self._options.looks_every.total_seconds() * (0.5 + self._dice.roll())

    async def _tell_all(self, tickets: Sequence[Ticket], logged: Set[str], *, until: float) -> None:
        """Tell tickets, and note it; those that cannot be begun in time are due again when their lease is over."""
        quiet = await self._told_by_their_group(tickets)
        loud = [ticket for ticket in tickets if ticket.id not in quiet]
        fresh = [ticket for ticket in loud if ticket.id not in logged]
        for ticket in fresh:  # the log first: a hook may hang
            self._log(ticket)
        heard = [ticket for ticket in loud if self._clock.monotonic() < until and await self._tell(ticket)]
        missed = [ticket for ticket in loud if ticket not in heard]
        # Where the one that stands for its group was not heard, another has to: none of them is told yet.
        open_groups = {ticket.fingerprint for ticket in missed}
        spared = [
            ticket.id for ticket in tickets if ticket.id in quiet and ticket.fingerprint not in open_groups
        ]
        await self._store.tickets_told([ticket.id for ticket in heard])
        await self._store.tickets_told(spared, quiet=True)
        self._heard.forget(heard)
        if logged_now := [ticket.id for ticket in missed if ticket in fresh]:
            # When it is logged, and not before: if this worker dies, another has to do it.
            await self._store.tickets_logged(logged_now)

    async def _worded(self, rows: Sequence[TicketRow]) -> list[Ticket]:
        ids = tuple(row.job_id for row in rows if row.job_id is not None)
        found = await self._store.letters(LetterFilter(job_ids=ids, limit=len(ids))) if ids else []
        letters = {letter.job_id: letter for letter in found}
        return [
            _plain(row)
            if row.job_id not in letters
            else of_letter(row.id, row.raised_at, letters[row.job_id], self._table(letters[row.job_id].name))
            for row in rows
        ]

    def _table(self, name: str) -> Table:
        spec = self._registry.get(name)
        return USUAL if spec is None else spec.exhaustion

    async def _told_by_their_group(self, tickets: Sequence[Ticket]) -> set[str]:
        """Name the tickets that need not be told, where one stands for a group; what is escalated always is."""
        if self._options.tickets_per != "group":
            return set()
        groups = {ticket.fingerprint for ticket in tickets if ticket.fingerprint}
        known = await self._store.groups_told(sorted(groups), within=QUIET)
        quiet = set()
        for ticket in tickets:
            if ticket.kind is TicketKind.DEAD_LETTER and ticket.fingerprint in known:
                quiet.add(ticket.id)
            elif ticket.fingerprint:
                known.add(ticket.fingerprint)
        return quiet

    def _log(self, ticket: Ticket) -> None:
        facts = {
            "ticket": ticket.id,
            "kind": ticket.kind.value,
            "ticket_level": ticket.level.value,
            "title": ticket.title,
            "fingerprint": ticket.fingerprint,
            "job_id": ticket.job_id,
            "name": ticket.facts.get("name"),
            "queue": ticket.facts.get("queue"),
            "first_reason": ticket.facts.get("first_reason"),
        }
        told = {name: value for name, value in facts.items() if value is not None}
        if ticket.level is Follow.PAGE:
            self._journal.error("ticket", **told)
        else:
            self._journal.warning("ticket", **told)
        self._metrics.count("tickets", level=ticket.level.value)

    async def _tell(self, ticket: Ticket) -> bool:
        """Tell one ticket to everybody who has not heard it; false if somebody has to hear of it again."""
        missing = [hook for hook in self._options.hooks if not self._heard.knows(hook, ticket)]
        wrong = await asyncio.gather(*(self._call(hook, ticket) for hook in missing))
        for hook, error in zip(missing, wrong, strict=True):
            if error is None:
                self._heard.note(hook, ticket)
            else:
                self._journal.error("ticket not told", ticket=ticket.id, message=self._describe(error))
        return not any(wrong)

    async def _call(self, hook: Hook, ticket: Ticket) -> BaseException | None:
        """Call a hook in a task of its own, for a while; give what went wrong, if anything did."""
        if id(hook) in self._hanging:
            return TimeoutError("the hook still hangs in an earlier ticket")
        call = asyncio.create_task(self._called(hook, ticket), name="holdfast ticket hook")
        try:
            await asyncio.wait([call], timeout=self._patience)
        finally:
            call.cancel()
        if not call.done():
            return TimeoutError(f"the hook took more than {self._patience:g} s")
        return asyncio.CancelledError("the hook was cancelled") if call.cancelled() else call.result()

    async def _called(self, hook: Hook, ticket: Ticket) -> BaseException | None:
        try:
            answer = hook(ticket) if _is_async(hook) else await self._in_a_thread(hook, ticket)
            if inspect.isawaitable(answer):
                await answer
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code, which may raise anything
            return error
        return None

    def _in_a_thread(self, hook: Hook, ticket: Ticket) -> "Awaitable[Awaitable[None] | None]":
        """Call a plain hook where it may block. A thread cannot be stopped: while one hangs, there is no second."""

        def call() -> Awaitable[None] | None:
            try:
                return hook(ticket)
            finally:
                self._hanging.discard(id(hook))

        self._hanging.add(id(hook))
        try:
            return self._executor.run(call)
        except RuntimeError:  # there is no thread for it
            self._hanging.discard(id(hook))
            raise


def _is_async(hook: Hook) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None))  # noqa: B004 - an object may have an async one


def _plain(row: TicketRow) -> Ticket:
    """Word a ticket that is about no letter, or about one that is gone."""
    # A newer version of the library may know other kinds.
    kind = next((known for known in TicketKind if known == row.kind), TicketKind.DEAD_LETTER)
    level = next((word for word in LEVELS if word == row.facts.get("level")), Follow.REVIEW)
    title = str(row.facts.get("title") or f"job {row.job_id} has failed, and its letter is gone")
    return Ticket(row.id, kind, level, title, row.raised_at, row.job_id, row.fingerprint, row.facts)
