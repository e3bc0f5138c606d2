"""Channels: ways by which people hear of tickets."""

from holdfast.channels.tickets import TicketWebhook

__all__ = ["TicketWebhook"]
