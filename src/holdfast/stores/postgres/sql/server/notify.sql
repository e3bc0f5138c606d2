-- Notifies listening processes. A notification may get lost: nothing depends on it.
SELECT pg_notify('holdfast', payload) FROM unnest($1::text[]) AS payload
