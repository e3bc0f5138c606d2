"""Messages between systems: publish through the outbox, relay to a broker, receive through the inbox."""
