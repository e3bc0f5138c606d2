"""Renders messages of the outbox and blocked routes as text and JSON."""

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from holdfast.cli.views.output import EMPTY, pairs, show_fields
from holdfast.cli.views.table import Cell, Column, Fit, moment, show_rows
from holdfast.core.messages.outbox import BlockedRoute, OutboxMessage

COLUMNS = (
    Column("id"),
    Column("status"),
    Column("type", Fit.CUT),
    Column("aggregate", Fit.CUT, drop_order=2),
    Column("created", drop_order=1),
    Column("retries", omit_if=("0",), drop_order=3),
    Column("held_by", Fit.CUT, omit_if=(EMPTY,)),
    Column("error", Fit.FOLDED, omit_if=(EMPTY,), min_width=20),
)
ROUTES = (
    Column("route"),
    Column("held"),
    Column("blocked"),
    Column("next_try"),
    Column("error", Fit.FOLDED),
)

TEXTS = ("payload", "headers")
"""Fields that belong to users, and are shown on request."""


def show_list(found: Sequence[OutboxMessage], now: datetime) -> None:
    """Print messages as a table; *now* is the time of the store."""
    show_rows(COLUMNS, [_row(message, now) for message in found], if_empty="no messages found")


def _row(message: OutboxMessage, now: datetime) -> tuple[object, ...]:
    return (
        message.id,
        message.status,
        message.message_type,
        f"{message.aggregate_type}/{message.aggregate_id}",
        moment(message.created_at, now),
        message.retry_count,
        message.held_by,
        message.error_message,
    )


def show(message: OutboxMessage, *, with_payload: bool) -> None:
    """Print one message."""
    shown = {
        field.name: getattr(message, field.name)
        for field in fields(message)
        if with_payload or field.name not in TEXTS
    }
    show_fields(shown | {"note": None if message.note is None else pairs(message.note)})


def as_json(message: OutboxMessage, *, with_payload: bool) -> dict[str, Any]:
    """Return a message as JSON values."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    texts = {name: _value(values.pop(name)) for name in TEXTS}
    return values | texts if with_payload else values


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # another program may have written the headers
        return text


def show_routes(found: Sequence[BlockedRoute], now: datetime) -> None:
    """Print blocked routes as a table."""
    rows = [
        (
            route.route,
            route.held,
            moment(route.blocked_at, now),
            Cell(route.probe_at, short="now") if route.probe_at <= now else moment(route.probe_at, now),
            route.error,
        )
        for route in found
    ]
    show_rows(ROUTES, rows, if_empty="no route is blocked")
