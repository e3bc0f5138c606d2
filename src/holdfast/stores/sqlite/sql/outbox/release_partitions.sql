-- Gives up the leases of a relay that stops. The raised lease_token fences what it may still send.
UPDATE holdfast_outbox_partitions
   SET leased_by = NULL, lease_expires_at = NULL, lease_token = lease_token + 1
 WHERE leased_by = :relay
