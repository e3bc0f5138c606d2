"""The ticket notifier: it logs tickets, and calls the hooks that the application has registered."""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Sequence, Set
from datetime import datetime, timedelta

from holdfast.core.dead_letters.letter import Letter, LetterFilter
from holdfast.core.dead_letters.ticket import Ticket, TicketKind, of_letter
from holdfast.core.failures.escalation import DEFAULT_ESCALATIONS, LEVELS, Escalation
from holdfast.engine.options import Hook
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import OptionalService
from holdfast.ports.dead_letters import TicketRow

BATCH = 10
"""Tickets that are leased together: few enough to deliver all within the lease, even if hooks hang."""

LEASE = timedelta(seconds=60)
"""How long a worker has to deliver the tickets that it has leased; then another worker may lease them."""

HOOK_TIMEOUT = 5.0
"""Seconds that a hook may take for one ticket; all hooks of a ticket run concurrently."""

IN_TIME = LEASE.total_seconds() - 2 * HOOK_TIMEOUT
"""Seconds after which no further ticket is started: the rest of the lease is for its hooks and for the store."""

QUIET = timedelta(days=1)
"""How long no further ticket of a group is delivered, with one ticket per group."""

REMEMBERED = 10_000
"""Most partly delivered tickets to remember."""


class HookDeliveries:
    """Which hooks have received which tickets: a hook is not called again because another one failed.

    Kept in memory for the latest *size* tickets. After a restart, a ticket is delivered to all hooks again.
    """

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._by_ticket: dict[tuple[str, datetime], set[int]] = {}

    def has(self, hook: Hook, ticket: Ticket) -> bool:
        # By its time, too: a job whose letter was deleted, and that fails again, has a ticket of the same name.
        return id(hook) in self._by_ticket.get((ticket.id, ticket.raised_at), ())

    def note(self, hook: Hook, ticket: Ticket) -> None:
        self._by_ticket.setdefault((ticket.id, ticket.raised_at), set()).add(id(hook))
        if len(self._by_ticket) > self._size:
            del self._by_ticket[next(iter(self._by_ticket))]

    def forget(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            self._by_ticket.pop((ticket.id, ticket.raised_at), None)


class TicketNotifier(OptionalService):
    """Delivers tickets. Every worker runs one; one at a time leases a ticket, and it is delivered at least once."""

    name = "notifier"

    def __init__(self, runtime: Runtime, *, hook_timeout: float = HOOK_TIMEOUT) -> None:
        super().__init__(runtime)
        self._metrics = runtime.metrics
        self._clock = runtime.clock
        self._executor = runtime.executor
        self._options = runtime.letters
        self._describe = runtime.describe
        self._hook_timeout = hook_timeout
        self._registry = runtime.registry
        self._hanging: set[int] = set()
        self._deliveries = HookDeliveries()

    async def run_once(self) -> float:
        """Deliver the tickets that are due; return the seconds until the next run."""
        until = self._clock.monotonic() + IN_TIME  # from before the lease begins
        rows = await self._store.tickets.take(limit=BATCH, lease=LEASE)
        if rows:
            logged = {row.id for row in rows if row.logged}
            await self._notify_all(await self._render_tickets(rows), logged, until=until)
        if len(rows) == BATCH:
            return 0
        return self._jittered(self._options.poll_interval.total_seconds())

    async def _notify_all(self, tickets: Sequence[Ticket], logged: Set[str], *, until: float) -> None:
        """Deliver tickets, and store that; those not started in time are due again when their lease expires."""
        covered = await self._covered_by_group(tickets)
        to_deliver = [ticket for ticket in tickets if ticket.id not in covered]
        unlogged = [ticket for ticket in to_deliver if ticket.id not in logged]
        for ticket in unlogged:  # the log first: a hook may hang
            self._log(ticket)
        delivered = [
            ticket for ticket in to_deliver if self._clock.monotonic() < until and await self._notify(ticket)
        ]
        undelivered = [ticket for ticket in to_deliver if ticket not in delivered]
        # Where the ticket of a group was not delivered, the others of that group stay due: one of them must be.
        open_groups = {ticket.fingerprint for ticket in undelivered}
        covered_ids = [
            ticket.id for ticket in tickets if ticket.id in covered and ticket.fingerprint not in open_groups
        ]
        await self._store.tickets.mark_notified([ticket.id for ticket in delivered])
        await self._store.tickets.mark_notified(covered_ids, quiet=True)
        self._deliveries.forget(delivered)
        if logged_now := [ticket.id for ticket in undelivered if ticket in unlogged]:
            # After it is logged, and not before: if this worker dies, another one has to log it.
            await self._store.tickets.mark_logged(logged_now)

    async def _render_tickets(self, rows: Sequence[TicketRow]) -> list[Ticket]:
        ids = tuple(row.job_id for row in rows if row.job_id is not None)
        found = await self._store.dead_letters.find(LetterFilter(job_ids=ids, limit=len(ids))) if ids else []
        letters = {letter.job_id: letter for letter in found}
        return [self._render(row, letters.get(row.job_id or "")) for row in rows]

    def _render(self, row: TicketRow, letter: Letter | None) -> Ticket:
        if letter is None:
            return _plain(row)
        spec = self._registry.get(letter.name)
        table = DEFAULT_ESCALATIONS if spec is None else spec.exhaustion
        return of_letter(row.id, row.raised_at, letter, table)

    async def _covered_by_group(self, tickets: Sequence[Ticket]) -> set[str]:
        """Return the ids of tickets that another one of their group covers; an escalated ticket is always delivered."""
        if self._options.tickets_per != "group":
            return set()
        groups = {ticket.fingerprint for ticket in tickets if ticket.fingerprint}
        known = await self._store.tickets.groups_notified(sorted(groups), within=QUIET)
        covered = set()
        for ticket in tickets:
            if ticket.kind is TicketKind.DEAD_LETTER and ticket.fingerprint in known:
                covered.add(ticket.id)
            elif ticket.fingerprint:
                known.add(ticket.fingerprint)
        return covered

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
        fields = {name: value for name, value in facts.items() if value is not None}
        if ticket.level is Escalation.PAGE:
            self._logger.error("ticket raised", **fields)
        else:
            self._logger.warning("ticket raised", **fields)
        self._metrics.count("tickets", level=ticket.level.value)

    async def _notify(self, ticket: Ticket) -> bool:
        """Call the hooks that have not received the ticket; return whether all of them have now."""
        missing = [hook for hook in self._options.hooks if not self._deliveries.has(hook, ticket)]
        wrong = await asyncio.gather(*(self._call(hook, ticket) for hook in missing))
        for hook, error in zip(missing, wrong, strict=True):
            if error is None:
                self._deliveries.note(hook, ticket)
            else:
                self._logger.error(
                    "ticket notification failed", ticket=ticket.id, message=self._describe(error)
                )
        return not any(wrong)

    async def _call(self, hook: Hook, ticket: Ticket) -> BaseException | None:
        """Call a hook in a task of its own, with a timeout; return its error, if any."""
        if id(hook) in self._hanging:
            return TimeoutError("the hook still hangs in an earlier ticket")
        call = asyncio.create_task(self._await_hook(hook, ticket), name="holdfast ticket hook")
        try:
            await asyncio.wait([call], timeout=self._hook_timeout)
        finally:
            call.cancel()
        if not call.done():
            return TimeoutError(f"the hook took more than {self._hook_timeout:g} s")
        return asyncio.CancelledError("the hook was cancelled") if call.cancelled() else call.result()

    async def _await_hook(self, hook: Hook, ticket: Ticket) -> BaseException | None:
        try:
            answer = hook(ticket) if _is_async(hook) else await self._call_in_thread(hook, ticket)
            if inspect.isawaitable(answer):
                await answer
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code, which may raise anything
            return error
        return None

    def _call_in_thread(self, hook: Hook, ticket: Ticket) -> "Awaitable[Awaitable[None] | None]":
        """Call a plain hook in a thread. A thread cannot be stopped: while a hook hangs, it is not called again."""

        def call() -> Awaitable[None] | None:
            try:
                return hook(ticket)
            finally:
                self._hanging.discard(id(hook))

        self._hanging.add(id(hook))
        try:
            return self._executor.run(call)
        except RuntimeError:  # no thread is available
            self._hanging.discard(id(hook))
            raise


def _is_async(hook: Hook) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None))  # noqa: B004 - an object may have an async one


def _plain(row: TicketRow) -> Ticket:
    """Render a ticket without a letter, or of a letter that is deleted."""
    # A newer version of the library may know other kinds.
    # An alarm about one of several things has its name after the kind: "route blocked: rabbitmq/exchange/key".
    named = row.kind.partition(":")[0]
    kind = next((known for known in TicketKind if known == named), TicketKind.DEAD_LETTER)
    level = next((word for word in LEVELS if word == row.facts.get("level")), Escalation.REVIEW)
    title = str(row.facts.get("title") or f"job {row.job_id} has failed, and its letter is gone")
    return Ticket(row.id, kind, level, title, row.raised_at, row.job_id, row.fingerprint, row.facts)
