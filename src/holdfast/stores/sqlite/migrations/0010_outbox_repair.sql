-- What operators repair in the outbox.

-- dead_job_id: the job of the dead letter that the message became when it failed last. The letter ends with the repair of
-- the message.
ALTER TABLE holdfast_outbox_messages ADD COLUMN dead_job_id TEXT;

-- Of messages that have failed before, the arguments of the job name the message. They are compared as text: an operator
-- may have replaced them by some that cannot be read here.
UPDATE holdfast_outbox_messages
   SET dead_job_id = letter.job_id
  FROM (SELECT payload.args, max(letter.job_id) AS job_id
          FROM holdfast_dead_letters AS letter
          JOIN holdfast_payloads AS payload ON payload.job_id = letter.job_id
         WHERE letter.name = 'holdfast.publish'
         GROUP BY payload.args) AS letter
 WHERE status = 'failed'
   AND letter.args = '{"outbox_id": "' || id || '"}';

-- unblocked: messages are published to the route again, and those that it has held are released in batches; its row is
-- deleted with the last of them, so that any relay can go on with what another has begun.
ALTER TABLE holdfast_outbox_routes ADD COLUMN unblocked INTEGER NOT NULL DEFAULT 0;
-- at_capacity: a queue of the route is full. Unblocked, its row and its alarm stay until `probe_at`: until then, it is the
-- same incident if the route is full again.
ALTER TABLE holdfast_outbox_routes ADD COLUMN at_capacity INTEGER NOT NULL DEFAULT 0;
