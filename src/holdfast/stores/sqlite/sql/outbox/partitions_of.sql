SELECT number, lease_token FROM holdfast_outbox_partitions WHERE leased_by = :relay ORDER BY number
