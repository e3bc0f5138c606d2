-- Deletes announcements in the transaction that stores their messages, and returns those that no other process has taken
-- since, or published.
DELETE FROM holdfast.announcements AS taken
 USING unnest($1::bigint[], $2::integer[]) AS want (sequence, tries)
 WHERE taken.sequence = want.sequence
   AND taken.tries = want.tries
RETURNING taken.sequence
