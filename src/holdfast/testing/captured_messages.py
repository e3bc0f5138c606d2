"""The messages that were published during a test. None of them leaves the process."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from holdfast.core.messages.outbox import NewMessage
from holdfast.engine.registry import Registry


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message that the code under test has published.

    `message` is read back from the JSON that would be sent; `id` is what its consumers see.
    """

    message: BaseModel
    type: str
    id: str
    aggregate: str
    headers: Mapping[str, str] = field(default_factory=dict)


class CapturedMessages:
    """Collects published messages in order; one that a job publishes again in its next attempt is there once."""

    def __init__(self, registry: Registry) -> None:
        self.published: list[PublishedMessage] = []
        self._registry = registry
        self._seen: set[str] = set()

    def add(self, batch: Iterable[NewMessage]) -> None:
        """Add messages that were stored."""
        for new in batch:
            if new.id not in self._seen:
                self._seen.add(new.id)
                self.published.append(self._message(new))

    def _message(self, new: NewMessage) -> PublishedMessage:
        message, _ = self._registry.message_types[new.message_type].load(new.payload)
        return PublishedMessage(
            message, new.message_type, new.message_id or new.id, new.aggregate_id, json.loads(new.headers)
        )
