-- What operators repair in the outbox.
LOCK TABLE holdfast.outbox_routes, holdfast.outbox_messages IN ACCESS EXCLUSIVE MODE;

-- dead_job_id: the job of the dead letter that the message became when it failed last. The letter ends with the repair of
-- the message.
ALTER TABLE holdfast.outbox_messages ADD COLUMN dead_job_id uuid;

-- Of messages that have failed before, the arguments of the job name the message. They are compared as text: an operator
-- may have replaced them by some that cannot be read here.
UPDATE holdfast.outbox_messages AS message
   SET dead_job_id = letter.job_id
  FROM (SELECT DISTINCT ON (payload.args) payload.args, letter.job_id
          FROM holdfast.dead_letters AS letter
          JOIN holdfast.payloads AS payload ON payload.job_id = letter.job_id
         WHERE letter.name = 'holdfast.publish'
         ORDER BY payload.args, letter.job_id DESC) AS letter
 WHERE message.status = 'failed'
   AND letter.args = '{"outbox_id": "' || message.id || '"}';

-- unblocked: messages are published to the route again, and those that it has held are released in batches; its row is
-- deleted with the last of them, so that any relay can go on with what another has begun.
ALTER TABLE holdfast.outbox_routes ADD COLUMN unblocked boolean NOT NULL DEFAULT false;
-- at_capacity: a queue of the route is full. Unblocked, its row and its alarm stay until `probe_at`: until then, it is the
-- same incident if the route is full again.
ALTER TABLE holdfast.outbox_routes ADD COLUMN at_capacity boolean NOT NULL DEFAULT false;
