-- Tells idle workers that these queues have ready jobs. A hint may get lost: nothing depends on it.
SELECT pg_notify('holdfast', 'ready:' || queue) FROM unnest($1::text[]) AS queue
