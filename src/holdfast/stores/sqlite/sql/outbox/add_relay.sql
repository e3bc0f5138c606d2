-- Records the heartbeat of a relay.
INSERT INTO holdfast_outbox_relays (name, seen_at) VALUES (:relay, :now)
    ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at
