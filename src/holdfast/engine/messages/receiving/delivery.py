"""What surrounds a message when it is given to its consumer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivered message beside its model: the second argument of a consumer's function.

    *trace* is its W3C trace context, if it has one, which its job continues. *connection* is in the transaction that
    stores the job: asyncpg's on PostgreSQL, sqlite3's on SQLite. What is written with it is committed with the job, or
    not at all.
    """

    message_id: str
    connection: Any
    headers: Mapping[str, Any] = field(default_factory=dict)
    trace: str | None = None
    redelivered: bool = False
