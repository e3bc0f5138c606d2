-- Names the job of a message: made since, or an earlier one with the same key. The row is this transaction's own.
UPDATE holdfast_inbox_messages SET job_id = :job_id WHERE consumer = :consumer AND message_id = :message_id
