-- A ticket that was kept quiet does not count, or a group would be kept quiet for ever by its own tickets.
SELECT DISTINCT fingerprint
  FROM holdfast.tickets
 WHERE fingerprint = ANY ($1::text[])
   AND NOT quiet
   AND told_at >= (SELECT now FROM holdfast.clock) - $2::interval
