"""The message oracle: it reads the outbox after every commit, and sees every message as it reaches the broker.

It asks no relay what it believes: a message is published when the broker has it, an attempt is spent when the broker
has refused it, and a partition belongs to the relay whose name its row has.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.jobs.stages import RESTARTED
from holdfast.core.messages.dead_message import PUBLISH
from tests.simulation.announcement_oracle import AnnouncementOracle
from tests.simulation.inbox_oracle import InboxOracle
from tests.simulation.message_jobs import LETTER, RELAY_BUDGET, STRANGER, serials_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.core.messages.broker_message import IncomingMessage
    from tests.simulation.account import NewEvent
    from tests.simulation.auditor import Commit, Row
    from tests.simulation.dead_letter_oracle import Jobs
    from tests.simulation.files import Tables
    from tests.simulation.simulated_broker import Arrival, SimulatedBroker

_OUTBOX = """
SELECT id, sequence, aggregate_type, aggregate_id, message_type, payload, status, coalesce(retry_count, 0), message_id,
       partition_number, held_by, key, job_id, dead_job_id
  FROM holdfast_outbox_messages
"""
_PARTITIONS = "SELECT number, leased_by, lease_token FROM holdfast_outbox_partitions"
_ROUTES = "SELECT route FROM holdfast_outbox_routes"
_DEAD = "SELECT job_id, args ->> 'outbox_id' FROM holdfast_payloads WHERE args LIKE '%outbox_id%'"

_OPEN_LETTERS = """
SELECT job_id FROM holdfast_dead_letters WHERE state IN ('new', 'triaged', 'remediated', 'validated')
"""

_STEPS = {
    "pending": {"published", "failed", "skipped"},
    "failed": {"pending", "published", "skipped"},
}
"""Where a message may go; one commit may batch several steps."""

_BEHIND = "message:"


class _Stored(NamedTuple):
    id: str
    sequence: int
    aggregate_type: str
    aggregate_id: str
    message_type: str
    payload: str
    status: str
    spent: int
    message_id: str | None
    partition: int
    held_by: str | None
    key: str | None
    job_id: str | None
    dead_job_id: str | None


class MessageRow(_Stored):
    """A message as the outbox stores it."""

    @cached_property
    def serial(self) -> str:
        """What distinguishes it from all others, in its body."""
        serial: str = json.loads(self.payload)["serial"]
        return serial

    @property
    def aggregate(self) -> tuple[str, str]:
        """What it is about."""
        return self.aggregate_type, self.aggregate_id

    @property
    def known_as(self) -> str:
        """The id that its consumers see."""
        return self.message_id or self.id

    @property
    def unpublished(self) -> bool:
        """Whether it holds back the later ones of its aggregate."""
        return self.status in ("pending", "failed")


class PartitionRow(NamedTuple):
    """A partition of the outbox, and the relay that has leased it."""

    number: int
    relay: str | None
    token: int


class MessageOracle:
    """Watches the outbox and the broker of a world; in a world without messages, it has nothing to see."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.broker: SimulatedBroker | None = None
        self._report = report
        self._rows: dict[str, MessageRow] = {}
        self._partitions: dict[int, PartitionRow] = {}
        self._routes: set[str] = set()
        self._dead: dict[str, str] = {}
        self._open_letters: frozenset[str] = frozenset()
        self._spent: Counter[str] = Counter()
        self._arrived: Counter[str] = Counter()
        self.acknowledged: set[str] = set()
        """The serial numbers of messages of which a caller was assured that they are stored."""
        self.rolled_back: set[str] = set()
        """Those of messages whose transaction was rolled back."""
        self.inbox_oracle = InboxOracle(report)
        self.announcement_oracle = AnnouncementOracle()

    @property
    def sent(self) -> list[bytes]:
        """The requests that another system has sent."""
        return self.inbox_oracle.sent

    def count(self) -> int:
        """How many messages were stored."""
        return len(self._rows)

    @property
    def has_blocked_routes(self) -> bool:
        """Whether a route is blocked."""
        return bool(self._routes)

    # At each commit.

    def complaints(
        self,
        tables: Tables,
        after: Jobs,
        commit: Commit,
        *,
        pairs: Sequence[tuple[Row | None, Row]],
        events: Mapping[str, Sequence[NewEvent]],
    ) -> Iterator[str]:
        """Check all that has changed."""
        if self.broker is None:
            return
        before, leased = self._rows, self._partitions
        self._rows = tables.read(_OUTBOX, self._message_rows)
        self._partitions = tables.read(_PARTITIONS, lambda rows: {row[0]: PartitionRow(*row) for row in rows})
        self._routes = tables.read(_ROUTES, lambda rows: {route for (route,) in rows})
        self._dead = tables.read(_DEAD, dict)
        self._open_letters = tables.read(_OPEN_LETTERS, lambda rows: frozenset(job_id for (job_id,) in rows))
        if self._partitions is not leased:
            yield from self._lease_complaints(leased, commit)
        yield from self.inbox_oracle.complaints(tables, after)
        keys = [row.key for row in self._rows.values()]
        yield from self.announcement_oracle.complaints(tables, after.rows, pairs, events, keys=keys)
        if self._rows is before:
            return
        for row in self._rows.values():
            was = before.get(row.id)
            if was is row:
                continue
            if was is None:
                texts = self._first(row, after)
            else:
                texts = self._step_complaints(was, row, leased, after.rows, commit)
            for text in texts:
                yield f"{text}: {was or 'new'} -> {row} by {commit.worker}"
        yield from self._hold_complaints()
        for gone in before.keys() - self._rows.keys():
            yield f"a message is gone: {before[gone]}"

    def _message_rows(self, rows: Iterable[tuple[object, ...]]) -> dict[str, MessageRow]:
        """Take rows as they were known before, where they have not changed."""
        before = self._rows
        return {
            str(row[0]): old if (old := before.get(str(row[0]))) == row else MessageRow._make(row)
            for row in rows
        }

    def _first(self, row: MessageRow, after: Jobs) -> Iterator[str]:
        if (row.status, row.spent, row.held_by) != ("pending", 0, None) and not self._arrived[row.serial]:
            yield "a message began oddly"
        if row.serial in self.rolled_back:
            yield "a message is stored whose transaction was rolled back"
        if any(one.serial == row.serial and one.id != row.id for one in self._rows.values()):
            restarted = any(name == RESTARTED and job_id == row.job_id for job_id, name, _ in after.stages)
            if not restarted:
                yield "a message was published twice"

    def _step_complaints(
        self,
        was: MessageRow,
        row: MessageRow,
        leased: Mapping[int, PartitionRow],
        jobs: Mapping[str, Row],
        commit: Commit,
    ) -> Iterator[str]:
        if was != row._replace(
            status=was.status, spent=was.spent, held_by=was.held_by, dead_job_id=was.dead_job_id
        ):
            yield "a message changed"
        if row.dead_job_id != was.dead_job_id and row.status != "failed":
            yield "a message has another dead letter, and has not failed"
        if was.status == "failed" != row.status and was.dead_job_id in self._open_letters:
            yield "a message was repaired, and its dead letter is still open"
        if row.status != was.status and row.status not in _STEPS.get(was.status, ()):
            yield f"a message went from {was.status} to {row.status}"
        if row.status == "published" != was.status and not self._arrived[row.serial]:
            yield "a message counts as published, and has not arrived"
        yield from self._charge_complaints(was, row)
        if row.status == "failed" != was.status:
            yield from self._death_complaints(row, jobs)
        if _relayed(was, row):
            holders = {place.relay for place in (leased[row.partition], self._partitions[row.partition])}
            if commit.worker not in holders:
                yield f"a relay wrote into a partition of {holders}"

    def _charge_complaints(self, was: MessageRow, row: MessageRow) -> Iterator[str]:
        """An attempt is spent by a refusal of the message, and by nothing else."""
        again = was.status == "failed" and row.status != "failed"
        spent = row.spent - (0 if again else was.spent)
        if again and row.status == "skipped":
            spent = 0
        if spent < 0:
            yield "attempts of a message were given back"
        assert self.broker is not None
        self._spent[row.serial] += spent
        if self._spent[row.serial] > self.broker.refused[row.serial] and not _is_broken(row):
            yield f"{self._spent[row.serial]} attempts are spent, and the broker refused it {self.broker.refused[row.serial]} times"
        if row.spent > RELAY_BUDGET:
            yield f"{row.spent} attempts are spent"

    def _death_complaints(self, row: MessageRow, jobs: Mapping[str, Row]) -> Iterator[str]:
        """A message fails when its attempts are spent, and its dead letter is written with that."""
        if row.spent != RELAY_BUDGET:
            yield f"a message failed after {row.spent} attempts"
        stands = [jobs.get(job_id) for job_id, message_id in self._dead.items() if message_id == row.id]
        failed = [
            job.id for job in stands if job is not None and (job.name, job.status) == (PUBLISH, "failed")
        ]
        if row.dead_job_id not in failed:
            yield "a message has failed without a dead letter"

    def _hold_complaints(self) -> Iterator[str]:
        """What holds a message back is there."""
        for row in self._rows.values():
            if row.held_by is None:
                continue
            ahead = self._rows.get(row.held_by.removeprefix(_BEHIND))
            if row.status != "pending":
                yield f"a message is held that is not pending: {row}"
            elif not row.held_by.startswith(_BEHIND):
                if row.held_by not in self._routes:
                    yield f"a message is held by a route that is not blocked: {row}"
            elif ahead is None or not ahead.unpublished:
                yield f"a message is held by one that does not hold it back: {row}, {ahead}"
            elif ahead.aggregate != row.aggregate or ahead.sequence >= row.sequence:
                yield f"a message is held by one that is not ahead of it: {row}, {ahead}"

    def _lease_complaints(self, before: Mapping[int, PartitionRow], commit: Commit) -> Iterator[str]:
        for place in self._partitions.values():
            was = before.get(place.number)
            if was is None or was == place:
                continue
            if place.token < was.token or (place.relay != was.relay and place.token == was.token):
                yield f"a partition changed hands without a new token: {was} -> {place} by {commit.worker}"
            if place.relay not in (None, was.relay, commit.worker):
                yield f"a partition was leased in another's name: {was} -> {place} by {commit.worker}"

    # At each arrival.

    def arrives(self, arrival: Arrival) -> None:
        """Check a message as it reaches the broker."""
        rows = [row for row in self._rows.values() if row.serial == arrival.serial]
        for text in self._arrival_complaints(arrival, rows):
            self._report(f"{text}: {arrival} of {rows}")
        self._arrived[arrival.serial] += 1

    def _arrival_complaints(self, arrival: Arrival, rows: list[MessageRow]) -> Iterator[str]:
        if not rows:
            yield "a message arrived that was never stored"
            return
        if arrival.id not in [row.known_as for row in rows]:
            yield "a message arrived under another id"
        if arrival.body.decode() not in [row.payload for row in rows]:
            yield "a message arrived with another body"
        if self._arrived[arrival.serial] or any(row.status == "skipped" for row in rows):
            return  # the order is that of first arrivals; a relay may publish what is skipped at this moment
        first = min(rows, key=lambda row: row.sequence)
        for ahead in self._rows.values():
            if ahead.aggregate != first.aggregate or ahead.sequence >= first.sequence:
                continue
            if not self._arrived[ahead.serial] and ahead.status != "skipped":
                yield f"a message has overtaken {ahead}"

    def acknowledges(self, message: IncomingMessage) -> None:
        """Check a message that a consumer has acknowledged."""
        self.inbox_oracle.acknowledges(message)

    # In the end.

    def missing(self, jobs: Iterable[Row]) -> Iterator[str]:
        """Name what was to be published, and is not in the outbox."""
        stored = {row.serial for row in self._rows.values()}
        for serial in sorted(self.acknowledged - stored):
            yield f"message {serial} was acknowledged, and is gone"
        for job in jobs:
            if job.name == LETTER and job.status == "completed":
                for serial in sorted(serials_of(job.id) - stored):
                    yield f"job {job.id} has completed, and has not published {serial}"

    def unsettled(self) -> Iterator[tuple[str, str]]:
        """Name the messages that are still to be published or received, and blocked routes that are to be tried."""
        assert self.broker is not None
        for message in self.broker.queue.left():
            yield f"request {message.id} {message.body!r}", f"not received: {message}"
        yield from self.announcement_oracle.unsettled()
        held: defaultdict[tuple[str, str], bool] = defaultdict(bool)
        waiting: defaultdict[str, list[MessageRow]] = defaultdict(list)
        for row in sorted(self._rows.values(), key=lambda row: row.sequence):
            if row.status == "pending" and not held[row.aggregate] and row.message_type != STRANGER:
                yield f"message {row.id} {self._spent[row.serial]}", f"not published: {row}"
            if row.status == "pending" and row.held_by is not None:
                waiting[row.held_by] += [row] * (not held[row.aggregate])
            if row.status == "failed" or (row.status == "pending" and row.message_type == STRANGER):
                held[row.aggregate] = True
        for route in self._routes:
            if not waiting[route] and not any(row.held_by == route for row in self._rows.values()):
                yield f"route {route}", f"no message waits for {route}, and it is blocked"


def _relayed(was: MessageRow, row: MessageRow) -> bool:
    """Whether a change is one that a relay alone makes, under its lease."""
    by_operator = row.status == "skipped" or (was.status == "failed" and row.status == "pending")
    held = row.held_by is not None and row.held_by != was.held_by
    return (row.status != was.status and not by_operator) or row.spent > was.spent or held


def _is_broken(row: MessageRow) -> bool:
    """Whether the relay itself refuses to publish it."""
    return bool(json.loads(row.payload).get("broken"))
