-- Suppressed tickets do not count: otherwise the tickets of a group would suppress the group forever.
SELECT json_group_array(value)
  FROM json_each(:fingerprints)
 WHERE EXISTS (SELECT 1
                 FROM holdfast_tickets INDEXED BY holdfast_tickets_told
                WHERE fingerprint = value AND quiet = 0 AND told_at IS NOT NULL AND told_at >= :since)
