"""Channels: ways by which people and other programs are notified."""

from holdfast.channels.ticket_webhook import TicketWebhook
from holdfast.channels.webhook import Webhook

__all__ = ["TicketWebhook", "Webhook"]
