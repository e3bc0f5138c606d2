DELETE FROM holdfast_outbox_relays WHERE name = :relay
