-- Locks the partitions that the relay still holds, in the order of their numbers: until the transaction ends, no other
-- relay can take them. Every change of the holder raises lease_token, so a relay that lost its lease locks nothing.
SELECT number
  FROM holdfast.outbox_partitions AS partition
  JOIN unnest($1::smallint[], $2::bigint[]) AS lease (number, token) USING (number)
 WHERE partition.lease_token = lease.token
 ORDER BY number
   FOR NO KEY UPDATE OF partition
