-- Returns those of these jobs that no other session has locked at this moment, after a write of all of them has
-- waited too long. A job that no longer exists counts as not locked. The locks taken here end with the statement.
WITH want AS MATERIALIZED (
    SELECT DISTINCT id::uuid AS id FROM unnest($1::text[]) AS want (id)
), free AS MATERIALIZED (
    SELECT job.id
      FROM want
      JOIN holdfast.jobs AS job ON job.id = want.id
       FOR UPDATE OF job SKIP LOCKED
)
SELECT want.id::text
  FROM want
 WHERE want.id IN (SELECT id FROM free)
    OR NOT EXISTS (SELECT FROM holdfast.jobs AS job WHERE job.id = want.id)
