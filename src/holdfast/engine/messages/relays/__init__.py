"""Relays publish what is in the outbox."""
