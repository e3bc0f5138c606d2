-- Records stages of claimed jobs. A stored result sets the attempt count back to the present
-- claim, in the same fenced statement, so that no stage pays for another.
WITH clock AS MATERIALIZED (
    SELECT holdfast.holdfast_now() AS now
), want AS MATERIALIZED (
    SELECT *
      FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
                  $8::text[], $9::text[])
           AS want (id, token, name, call, status, attempt, fingerprint, result, failure)
), held AS (
    UPDATE holdfast.jobs AS job
       SET attempt = CASE WHEN want.done > 0 THEN 1 ELSE job.attempt END,
           losses = CASE WHEN want.done > 0 THEN 0 ELSE job.losses END,
           stages = job.stages + want.written,
           updated_at = clock.now
      FROM clock,
           (SELECT id::uuid AS id, token, count(*) FILTER (WHERE status = 'done') AS done, count(*) AS written
              FROM want GROUP BY id, token) AS want
     WHERE job.id = want.id
       AND job.lease_token = want.token
    RETURNING job.id, job.generation, job.lease_token
), written AS (
    INSERT INTO holdfast.stages (
        job_id, name, call, status, attempt, generation, lease_token, fingerprint, stored_at, result, failure)
    SELECT held.id, want.name, want.call, want.status, want.attempt, held.generation, held.lease_token,
           want.fingerprint, clock.now, want.result, want.failure
      FROM held, want, clock
     WHERE held.id = want.id::uuid
        ON CONFLICT (job_id, name, call) DO UPDATE
       SET status = excluded.status, attempt = excluded.attempt, generation = excluded.generation,
           lease_token = excluded.lease_token, fingerprint = excluded.fingerprint,
           stored_at = excluded.stored_at, result = excluded.result, failure = excluded.failure
     WHERE stages.status = 'started'
)
SELECT id::text FROM held
