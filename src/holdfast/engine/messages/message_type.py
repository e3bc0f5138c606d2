"""A message type: a pydantic model with the route of its messages, and what identifies one of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from holdfast.core.errors import ConfigError, PayloadInvalid
from holdfast.core.messages.broker_message import Route
from holdfast.core.strict_json import DEFAULT_LIMIT, decode, encode, fingerprint

Payload = str | Mapping[str, Any]
"""The JSON of a message, or what was decoded from it."""

LONGEST_ID = 200
"""Characters of a message's id, which is also an idempotency key."""


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message type as declared.

    *identity* and *aggregate* are paths of fields in the JSON, such as `requestId` or `metadata.traceId`; *unhashed*
    names the fields at the top that may differ when a message is honestly sent again.
    """

    name: str
    model: type[BaseModel]
    route: Route
    identity: tuple[str, ...] = ()
    """What identifies a message: two with the same values are one message. Without it, every message is new."""
    aggregate_type: str = ""
    aggregate: str | None = None
    """The field whose value is the aggregate's id: messages of one aggregate are published in order."""
    version: int = 1
    unhashed: tuple[str, ...] = ("metadata",)
    reply_to: tuple[str, ...] = ()
    """The routing keys that the sender of a request may choose for this message, which answers it."""

    def dump(self, message: BaseModel) -> str:
        """Write a message as strict JSON, by the aliases of its model. Raises `PayloadInvalid`, `PayloadTooLarge`."""
        return self.dump_with_fields(message)[0]

    def dump_with_fields(self, message: BaseModel) -> tuple[str, Payload]:
        """Do what `dump` does, and return the JSON values with it, so that no caller decodes them again."""
        fields = message.model_dump(mode="json", by_alias=True)
        return encode(fields, what=self._what, limit=DEFAULT_LIMIT), fields

    def load(self, body: str | bytes) -> tuple[BaseModel, str]:
        """Read a message; return it, and its JSON as it is stored. Raises `PayloadInvalid`, which quotes no value."""
        return self.check(decode(body, what=self._what))

    def check(self, payload: Any) -> tuple[BaseModel, str]:
        """Check JSON values; return the message, and its JSON as it is stored. Raises `PayloadInvalid`, `PayloadTooLarge`."""
        try:
            message = self.model.model_validate(payload)
        except ValidationError as error:
            fields = ", ".join(sorted({".".join(map(str, each["loc"])) or "it" for each in error.errors()}))
            raise PayloadInvalid(f"{self._what} does not fit its schema: {fields}") from None
        return message, encode(payload, what=self._what, limit=DEFAULT_LIMIT)

    def message_id(self, payload: Payload) -> str | None:
        """Return what identifies the message; `None` if nothing was declared. Raises `PayloadInvalid`."""
        if not self.identity:
            return None
        fields = self._fields(payload)
        found = ":".join(quote(value_at(fields, path, self._what), safe="") for path in self.identity)
        if len(found) > LONGEST_ID:
            raise PayloadInvalid(
                f"{self._what} has an identity of {len(found)} characters; {LONGEST_ID} are the most"
            )
        return found

    def aggregate_id(self, payload: Payload) -> str | None:
        """Return the id of the message's aggregate; `None` if no field was declared. Raises `PayloadInvalid`."""
        return None if self.aggregate is None else value_at(self._fields(payload), self.aggregate, self._what)

    def fingerprint(self, payload: str) -> str:
        """Return the same text for messages that say the same; fields in *unhashed* do not count."""
        return fingerprint(self.hashed_part(payload))

    def hashed_part(self, payload: Payload) -> str:
        """Return the JSON of a message without the fields in *unhashed*. Raises `PayloadInvalid`."""
        fields = {name: value for name, value in self._fields(payload).items() if name not in self.unhashed}
        return json.dumps(fields)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the message."""
        return self.model.model_json_schema(by_alias=True)

    @property
    def _what(self) -> str:
        return f"message {self.name!r}"

    def _fields(self, payload: Payload) -> Mapping[str, Any]:
        fields = json.loads(payload) if isinstance(payload, str) else payload
        if not isinstance(fields, dict):
            raise PayloadInvalid(f"{self._what} must be a JSON object")
        return fields


def value_at(fields: Mapping[str, Any], path: str, what: str) -> str:
    """Return the text, number or truth value at *path*, as text. Raises `PayloadInvalid` if there is none.

    >>> value_at({"metadata": {"attempt": 2}}, "metadata.attempt", "it")
    '2'
    """
    found: Any = fields
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if found is None or isinstance(found, dict | list) or found == "":
        raise PayloadInvalid(f"{what} has no value at {path!r}, which identifies it")
    return found if isinstance(found, str) else json.dumps(found)


def ensure_paths(model: type[BaseModel], paths: tuple[str, ...], what: str) -> None:
    """Raise `ConfigError` if the first field of a path is not in the JSON of *model*."""
    known = {field.serialization_alias or field.alias or name for name, field in model.model_fields.items()}
    for path in paths:
        if path.split(".")[0] not in known:
            raise ConfigError(f"{what} has no field {path!r}; its fields are {', '.join(sorted(known))}")
