-- Keeps a result that arrived under the lease which the deadline ended; the first one counts.
UPDATE holdfast_finished
   SET late_at = :now, late_result = :result
 WHERE id = :id
   AND timed_out_token = :token
   AND status = 'failed'
   AND late_at IS NULL
