-- Deletes relays that ended long ago, without giving up their leases.
DELETE FROM holdfast_outbox_relays WHERE seen_at <= :now - 10 * :lease
