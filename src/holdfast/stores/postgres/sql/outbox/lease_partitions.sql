-- Records the heartbeat of a relay, extends its leases, gives up what is above its fair share, and takes what is free or
-- expired up to it. Runs with all partitions locked. A change of the holder raises lease_token; an extension does not.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), seen AS (
    INSERT INTO holdfast.outbox_relays (name, seen_at)
    SELECT $1, now FROM clock
    ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at
), forgotten AS (
    DELETE FROM holdfast.outbox_relays
     USING clock
     WHERE name <> $1 AND seen_at <= clock.now - 10 * $2::interval
), share AS (
    SELECT ceil((SELECT count(*) FROM holdfast.outbox_partitions)::numeric / (1 + count(*))) AS most
      FROM holdfast.outbox_relays, clock
     WHERE name <> $1 AND seen_at > clock.now - $2::interval
), ranked AS (
    SELECT number, leased_by IS NOT DISTINCT FROM $1 AS own,
           row_number() OVER (ORDER BY leased_by IS NOT DISTINCT FROM $1 DESC, number) AS place
      FROM holdfast.outbox_partitions, clock
     WHERE leased_by IS NULL OR leased_by = $1 OR lease_expires_at <= clock.now
)
UPDATE holdfast.outbox_partitions AS partition
   SET leased_by = CASE WHEN ranked.place <= share.most THEN $1 END,
       lease_expires_at = CASE WHEN ranked.place <= share.most THEN clock.now + $2::interval END,
       lease_token = lease_token + CASE WHEN ranked.own AND ranked.place <= share.most THEN 0 ELSE 1 END
  FROM ranked, share, clock
 WHERE partition.number = ranked.number
   AND (ranked.own OR ranked.place <= share.most)
RETURNING partition.number, partition.lease_token, partition.leased_by
