-- Returns when the next retried message of the relay's partitions is due.
SELECT min((SELECT due_at
              FROM holdfast_outbox_messages INDEXED BY holdfast_outbox_retried
             WHERE partition_number = lease.value ->> 0
               AND status = 'pending' AND held_by IS NULL AND due_at IS NOT NULL AND due_at > :now
             ORDER BY due_at
             LIMIT 1))
  FROM json_each(:leases) AS lease
