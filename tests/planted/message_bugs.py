"""Mistakes around messages: outbox, relay, announcements, and inbox."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from holdfast.app.current import next_message_key
from holdfast.app.messages import messaging
from holdfast.core.errors import BrokerUnavailable, MessageRefused, RouteRefused
from holdfast.core.messages.announcements import PendingAnnouncement
from holdfast.core.messages.inbox import InboxAnswer, InboxOutcome
from holdfast.core.messages.outbox import after_refusal, outgoing, published
from holdfast.engine.execution.context import CURRENT
from holdfast.engine.messages.message_type import MessageType
from holdfast.engine.messages.receiving.consumer import Consumer
from holdfast.engine.messages.relays import batch_publisher
from holdfast.engine.messages.relays.batch_publisher import BatchPublisher, MessageOutcome
from holdfast.engine.messages.relays.relay import Relay
from holdfast.stores.letter_rows import step_rows
from holdfast.stores.sqlite.dead_letters.replaying import record_steps
from holdfast.stores.sqlite.messages import outbox
from holdfast.stores.sqlite.messages.announcements import SqliteAnnouncements
from holdfast.stores.sqlite.messages.inbox import SqliteInbox, _Transaction
from holdfast.stores.sqlite.messages.outbox_writer import add_messages
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.submitting import submit
from tests.planted.planting import Bug, Schema, Sql, Swap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.core.messages.announcements import RenderedAnnouncement
    from holdfast.core.messages.broker_message import OutgoingMessage, Route
    from holdfast.core.messages.inbox import InboxItem
    from holdfast.core.messages.outbox import DueMessage, MessageTransition, PartitionLease
    from holdfast.ports.messages.outbox import DueMessages

_NEXT_BATCH = Consumer._next_batch
_SENDING: set[asyncio.Task[Any]] = set()


# Relays.


async def _send_and_forget(self: Any, message: DueMessage) -> MessageOutcome | None:
    route = self.route(message)
    sending = asyncio.create_task(self._clients.get(route.broker).publish(outgoing(message, route)))
    _SENDING.add(sending)
    sending.add_done_callback(_SENDING.discard)
    return MessageOutcome(message, route, published(message))


def _hold_all(connection: Any, leases: Sequence[PartitionLease]) -> set[int]:
    return {lease.number for lease in leases}


def _blame(*classes: type[Exception]) -> Callable[..., MessageTransition | None]:
    """Blame the message for errors of these classes."""

    def blame_the_message(
        message: DueMessage, route: Route, error: Exception, failure: Any, **how: Any
    ) -> MessageTransition | None:
        blamed = MessageRefused(str(error)) if isinstance(error, classes) else error
        return after_refusal(message, route, blamed, failure, **how)

    return blame_the_message


async def _go_on_after_a_refusal(
    self: Any,
    chain: Sequence[DueMessage],
    due: DueMessages,
    leased: Callable[[DueMessage], bool],
    outcomes: list[MessageOutcome],
) -> None:
    for message in chain:
        outcome = await self.publish(message) if leased(message) else None
        if outcome is not None:
            outcomes.append(outcome)


def _name_each_try(message: DueMessage, route: Route) -> OutgoingMessage:
    sent = outgoing(message, route)
    return sent._replace(id=f"{sent.id}:{message.retry_count}")


async def _wait_for_an_operator(self: Any, leases: Sequence[PartitionLease]) -> list[MessageOutcome]:
    return []


def _change_and_release_nothing(
    connection: Any, now: int, *, statement: str, values: Mapping[str, Any], letter: Any
) -> list[str]:
    rows = connection.execute(SQL[statement], {**values, "now": now}).fetchall()
    dead = json.dumps([row["dead_job_id"] for row in rows])
    ending = {"ids": dead, "state": letter.to, "notes": letter.notes, "now": now}
    ended = [row["job_id"] for row in connection.execute(SQL["end_letters"], ending).fetchall()]
    record_steps(connection, ended, now, step_rows([letter]))
    return [row["id"] for row in rows]


def _without_a_letter(connection: Any, batch: Sequence[Any], *, now: int) -> None:
    return


# Publishing.


def _key_of_the_attempt(message_type: str, identity: str) -> str | None:
    key, running = next_message_key(message_type, identity), CURRENT.get()
    return key if key is None or running is None else f"{key}:{running.claim.attempt}"


# Announcements.


def _key_without_kind(self: PendingAnnouncement, number: int) -> str:
    return f"announce:{self.job_id}:{number}"


async def _delete_and_then_add(self: Any, batch: Sequence[RenderedAnnouncement]) -> int:
    sequences = json.dumps([each.taken.sequence for each in batch])
    await self._writer.execute(SQL["delete_announcements"], {"sequences": sequences})
    messages = [message for each in batch for message in each.messages]
    await self._writer.write(lambda connection, now: add_messages(connection, messages, now=now))
    return len(batch)


# The inbox.


async def _acknowledge_and_then_store(self: Any, subscription: Any) -> Any:
    batch = await _NEXT_BATCH(self, subscription)
    if batch:
        await subscription.acknowledge(batch)
    return batch


async def _acknowledge_nothing(self: Any, subscription: Any, batch: Any, received: Any) -> None:
    return


async def _acknowledge_all(self: Any, subscription: Any, batch: Any, received: Any) -> None:
    if batch:
        await subscription.acknowledge(batch)


async def _record_and_then_submit(self: Any, consumer: str, batch: Sequence[InboxItem]) -> list[InboxAnswer]:
    new = await self._writer.write(
        lambda connection, now: _Transaction(connection, now, consumer, batch)._record()
    )
    jobs = [item.work for item in new if item.work is not None and item.work.args]
    await self._writer.write(lambda connection, now: submit(connection, jobs, now=now))
    return [InboxAnswer(InboxOutcome.NEW, item.job_id) for item in batch]


def _hash_everything(self: MessageType, payload: Any) -> str:
    return json.dumps(self._fields(payload))


BUGS = (
    Bug(
        "marked-before-it-is-published",
        "It is on its way; why wait for the answer?",
        ("OUT-3",),
        (Swap(BatchPublisher, "publish", _send_and_forget),),
    ),
    Bug(
        "relay-not-fenced",
        "The relay has leased these partitions, so they are its own.",
        ("OUT-4",),
        (Swap(outbox, "_held", _hold_all),),
    ),
    Bug(
        "partition-token-kept",
        "The name says which relay has it.",
        ("OUT-4",),
        (
            Sql(
                "lease_partitions",
                "lease_token + NOT (ranked.own AND ranked.place <= ranked.share)",
                "lease_token",
            ),
        ),
    ),
    Bug(
        "failed-message-lets-others-pass",
        "It has failed, and what is behind it is held: there is nothing to wait for.",
        ("OUT-3",),
        (
            Sql(
                "due_messages",
                "               AND message.status IN ('pending', 'failed')\n",
                "               AND message.status IN ('pending', 'failed')\n"
                "               AND message.status <> 'failed' AND message.held_by IS NULL\n",
            ),
        ),
    ),
    Bug(
        "overtaken-after-a-refusal",
        "One message that is refused is no reason to stop.",
        ("OUT-3",),
        (Swap(BatchPublisher, "_publish_in_order", _go_on_after_a_refusal),),
    ),
    Bug(
        "ordered-by-time",
        "The oldest first: that is what created_at is for.",
        ("OUT-3",),
        (
            Sql(
                "due_messages",
                " ORDER BY chosen.sequence\n",
                " ORDER BY message.created_at, message.id DESC\n",
            ),
        ),
    ),
    Bug(
        "outage-costs-attempts",
        "It was tried, so an attempt is spent.",
        ("OUT-4",),
        (Swap(batch_publisher, "after_refusal", _blame(BrokerUnavailable)),),
    ),
    Bug(
        "refused-route-costs-attempts",
        "The broker says no to the message.",
        ("OUT-3",),
        (Swap(batch_publisher, "after_refusal", _blame(RouteRefused)),),
    ),
    Bug(
        "route-never-tried-again",
        "An operator will unblock it.",
        ("OUT-3",),
        (Swap(Relay, "_probe_routes", _wait_for_an_operator),),
    ),
    Bug(
        "another-id-for-each-try",
        "Each try is a message of its own.",
        ("OUT-4",),
        (Swap(batch_publisher, "outgoing", _name_each_try),),
    ),
    Bug(
        "skipped-message-holds-on",
        "What is skipped is done.",
        ("OUT-3",),
        (Swap(outbox, "_change", _change_and_release_nothing),),
    ),
    Bug(
        "dead-message-without-a-letter",
        "The row says that it has failed.",
        ("OUT-3",),
        (Swap(outbox, "add_dead_messages", _without_a_letter),),
    ),
    Bug(
        "message-key-of-the-attempt",
        "Another attempt is another publication.",
        ("OUT-1",),
        (Swap(messaging, "next_message_key", _key_of_the_attempt),),
    ),
    Bug(
        "only-workers-announce",
        "No worker has it: there is nothing to announce.",
        ("GRD-5",),
        (
            Schema(
                "AFTER INSERT ON holdfast_finished WHEN NEW.announces <> 0\n",
                "AFTER INSERT ON holdfast_finished WHEN NEW.announces <> 0 AND NEW.leased_by IS NOT NULL\n",
            ),
        ),
    ),
    Bug(
        "announcement-deleted-before-its-message",
        "We have it in memory, so the row can go.",
        ("OUT-1",),
        (Swap(SqliteAnnouncements, "publish", _delete_and_then_add),),
    ),
    Bug(
        "one-announcement-for-each-job",
        "The id says which job it is about.",
        ("OUT-1",),
        (Swap(PendingAnnouncement, "message_key", _key_without_kind),),
    ),
    Bug(
        "acknowledged-before-it-is-stored",
        "A message is received when it is received.",
        ("OUT-5",),
        (
            Swap(Consumer, "_next_batch", _acknowledge_and_then_store),
            Swap(Consumer, "_acknowledge", _acknowledge_nothing),
        ),
    ),
    Bug(
        "postponed-message-acknowledged",
        "Its consumer has seen it.",
        ("OUT-5",),
        (Swap(Consumer, "_acknowledge", _acknowledge_all),),
    ),
    Bug(
        "inbox-row-without-its-job",
        "First note that it was received, then do what it asks for.",
        ("OUT-5",),
        (Swap(SqliteInbox, "receive", _record_and_then_submit),),
    ),
    Bug(
        "fingerprint-of-everything",
        "The same message has the same bytes.",
        ("OUT-5",),
        (Swap(MessageType, "hashed_part", _hash_everything),),
    ),
)
