"""Tickets for another program: each is posted to a webhook, as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.channels.webhook import Webhook
from holdfast.core.dead_letters.ticket import Ticket
from holdfast.ports.system import Clock


@dataclass(frozen=True)
class TicketWebhook:
    """Posts each ticket to an address. Pass it to `hold.on_ticket`, or set `HOLDFAST_TICKET_WEBHOOK_URL`.

    The header `webhook-id` is the id of the ticket, also when it is sent again. With *secrets* there is a
    `webhook-signature` by each of them. An answer other than 2xx raises `Retryable`; redirects are not followed.
    The ticket is then sent again. An address that is not public must be listed in *allow*.
    Raises `ConfigError` for an address, a secret or an allow-list that cannot be used.
    """

    url: str = field(repr=False)
    secrets: Sequence[str] = field(default=(), repr=False, kw_only=True)
    allow: Sequence[str] = field(default=(), kw_only=True)
    clock: Clock = field(repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        self._webhook()

    async def __call__(self, ticket: Ticket) -> None:
        """Send one ticket. Raises `Retryable` unless the receiver has confirmed it."""
        fields = {_camel(name): value for name, value in ticket.to_dict().items()}
        await self._webhook().post(ticket.id, json.dumps(fields, default=str).encode())

    def _webhook(self) -> Webhook:
        return Webhook(self.url, secrets=self.secrets, allow=self.allow, clock=self.clock)


def _camel(name: str) -> str:
    """Convert a field name to camel case.

    >>> _camel("first_reason")
    'firstReason'
    """
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)
