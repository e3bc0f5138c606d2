-- Suppressed tickets do not count: otherwise the tickets of a group would suppress the group forever.
SELECT DISTINCT fingerprint
  FROM holdfast.tickets
 WHERE fingerprint = ANY ($1::text[])
   AND NOT quiet
   AND told_at >= (SELECT now FROM holdfast.clock) - $2::interval
