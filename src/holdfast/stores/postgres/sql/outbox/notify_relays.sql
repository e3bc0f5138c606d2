-- Notifies relays, when the transaction commits, that there are messages to publish.
SELECT pg_notify('holdfast', 'message:')
