"""Channels: ways by which people and other programs are notified."""

from holdfast.channels.tickets import TicketWebhook
from holdfast.channels.webhook import Webhook

__all__ = ["TicketWebhook", "Webhook"]
