-- Returns which of the partitions [[number, token], ...] the relay still holds. Every change of the holder raises
-- lease_token, so a relay that lost its lease finds none.
SELECT number
  FROM json_each(:leases) AS lease
  JOIN holdfast_outbox_partitions ON number = lease.value ->> 0 AND lease_token = lease.value ->> 1
