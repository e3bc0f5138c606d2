"""Messages between systems: what is published through the outbox, and received through the inbox."""
