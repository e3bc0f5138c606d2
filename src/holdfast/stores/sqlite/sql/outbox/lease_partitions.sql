-- Extends the leases of a relay, gives up what is above its fair share, and takes what is free or expired up to it. A
-- change of the holder raises lease_token; an extension does not.
UPDATE holdfast_outbox_partitions
   SET leased_by = CASE WHEN ranked.place <= ranked.share THEN :relay END,
       lease_expires_at = CASE WHEN ranked.place <= ranked.share THEN :now + :lease END,
       lease_token = lease_token + NOT (ranked.own AND ranked.place <= ranked.share)
  FROM (SELECT number, leased_by IS :relay AS own,
               row_number() OVER (ORDER BY leased_by IS :relay DESC, number) AS place,
               (SELECT (count(*) + live - 1) / live
                  FROM holdfast_outbox_partitions,
                       (SELECT count(*) AS live FROM holdfast_outbox_relays WHERE seen_at > :now - :lease)) AS share
          FROM holdfast_outbox_partitions
         WHERE leased_by IS NULL OR leased_by = :relay OR lease_expires_at <= :now) AS ranked
 WHERE holdfast_outbox_partitions.number = ranked.number
   AND (ranked.own OR ranked.place <= ranked.share)
