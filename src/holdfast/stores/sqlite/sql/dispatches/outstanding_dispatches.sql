-- Reads which dispatches of a queue may still arrive: each further one is waited for twice as long, up to eight times.
SELECT json_group_array(job_id)
  FROM holdfast_dispatches
 WHERE queue = :queue
   AND :now - sent_at < :resend * (1 << min(number - 1, 3))
