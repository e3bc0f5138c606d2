"""Messages between systems: brokers, and the tables of the store for messages."""
