SELECT DISTINCT fingerprint
  FROM holdfast.tickets
 WHERE fingerprint = ANY ($1::text[])
   AND told_at >= (SELECT now FROM holdfast.clock) - $2::interval
