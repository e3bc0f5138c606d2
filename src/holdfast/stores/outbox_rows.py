"""Converts rows of the outbox to values, and builds the statement that finds messages, for every store."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.core.messages.outbox import MessageFilter, MessageStatus, OutboxMessage
from holdfast.stores.find_statement import FILTERS
from holdfast.stores.queries import Queries
from holdfast.stores.rows import Row

_STATUSES = {status: f"status = '{status.value}'" for status in MessageStatus}
_HELD = {None: "", True: " AND held_by IS NOT NULL", False: " AND held_by IS NULL"}


def message_from(row: Row) -> OutboxMessage:
    """Read a message from the columns of `message` and `find_messages`, with its instants as `datetime`."""
    fields = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a driver's row is no mapping
    fields["status"] = MessageStatus(fields["status"])
    fields["note"] = None if fields["note"] is None else json.loads(fields["note"])
    return OutboxMessage(**fields)


class Position(NamedTuple):
    """The place of a message in a list; another program may have stored it without *created_at*."""

    created_at: Any
    sequence: int


def find_messages_statement(
    sql: Queries,
    message_filter: MessageFilter,
    bind: Callable[[str, Any], str],
    *,
    before: Position | None,
    nulls_first: bool,
) -> str:
    """Return the statement that finds the messages that match, the newest first, on the page after *before*.

    *bind* takes a name and a value and returns the placeholder. Each status is looked up apart: the index has the
    messages of one status by age. *nulls_first* says where the store sorts rows without a time.
    """
    wanted = {
        "message_type": message_filter.message_type,
        "aggregate_type": message_filter.aggregate_type,
        "aggregate_id": message_filter.aggregate_id,
    }
    conditions = "".join(
        f" AND {name} = {bind(name, value)}" for name, value in wanted.items() if value is not None
    )
    conditions += _HELD[message_filter.held]
    if before is not None:
        conditions += f" AND {_older(before, bind, nulls_first=nulls_first)}"
    limit = bind("limit", message_filter.limit)
    statuses = list(MessageStatus) if message_filter.status is None else [message_filter.status]
    parts = [
        f"SELECT * FROM ({sql['find_messages'].replace(FILTERS, f' AND {_STATUSES[status]}{conditions}')} LIMIT {limit}) AS {status}_messages"  # noqa: S608 - constants and placeholders
        for status in statuses
    ]
    return "\n UNION ALL\n".join(parts) + f"\n ORDER BY created_at DESC, sequence DESC LIMIT {limit}"


def _older(before: Position, bind: Callable[[str, Any], str], *, nulls_first: bool) -> str:
    """Return the condition of the rows that come after *before* in a list."""
    sequence = bind("before_sequence", before.sequence)
    if before.created_at is None:
        if nulls_first:
            return f"(created_at IS NOT NULL OR sequence < {sequence})"
        return f"created_at IS NULL AND sequence < {sequence}"
    at = bind("before_at", before.created_at)
    older = f"created_at <= {at} AND (created_at < {at} OR sequence < {sequence})"
    return older if nulls_first else f"(created_at IS NULL OR {older})"
