-- Records stages of claimed jobs. A stage that ended, well or not, resets the attempt count to that of the present
-- claim, in the same fenced statement, so that no stage pays for another. Losses stay: a job that stores another
-- stage in each run and then crashes its worker is suspected nevertheless. The stages of a job are carried with its
-- row from the update to the insert: joining them again would cost the square of the batch.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), want AS MATERIALIZED (
    SELECT id::uuid AS id, token, bool_or(status <> 'started') AS ended, count(*) AS written,
           array_agg(name) AS names, array_agg(call) AS calls, array_agg(status) AS statuses,
           array_agg(attempt) AS attempts, array_agg(fingerprint) AS fingerprints,
           array_agg(result) AS results, array_agg(failure) AS failures,
           array_agg(provider) AS providers, array_agg(brief_fingerprint) AS brief_fingerprints
      FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
                  $8::text[], $9::text[], $10::text[], $11::text[])
           AS want (id, token, name, call, status, attempt, fingerprint, result, failure, provider,
                    brief_fingerprint)
     GROUP BY id, token
     ORDER BY id
), held AS (
    UPDATE holdfast.jobs AS job
       SET attempt = CASE WHEN want.ended THEN 1 ELSE job.attempt END,
           stages = job.stages + want.written,
           updated_at = clock.now
      FROM clock, want
     WHERE job.id = want.id
       AND job.lease_token = want.token
       AND job.leased_by IS NOT NULL
    RETURNING job.id, job.generation, job.lease_token, job.stages, want.names, want.calls, want.statuses, want.attempts,
              want.fingerprints, want.results, want.failures, want.providers,
              want.brief_fingerprints
), written AS (
    INSERT INTO holdfast.stages (
        job_id, name, call, status, attempt, generation, lease_token, fingerprint, stored_at, result, failure,
        provider, number, brief_fingerprint)
    -- A batch may contain the note that a stage is under way and its result: the result counts. Of two notes the one
    -- with the lower attempt counts: it returns the attempt of the other.
    SELECT DISTINCT ON (held.id, stage.name, stage.call)
           held.id, stage.name, stage.call, stage.status, stage.attempt, held.generation, held.lease_token,
           stage.fingerprint, clock.now, stage.result, stage.failure, stage.provider, held.stages,
           stage.brief_fingerprint
      FROM held, clock,
           unnest(held.names, held.calls, held.statuses, held.attempts, held.fingerprints, held.results,
                  held.failures, held.providers, held.brief_fingerprints)
           AS stage (name, call, status, attempt, fingerprint, result, failure, provider, brief_fingerprint)
     ORDER BY held.id, stage.name, stage.call, stage.status = 'started', stage.attempt
        ON CONFLICT (job_id, name, call) DO UPDATE
       SET status = excluded.status, attempt = excluded.attempt, generation = excluded.generation,
           lease_token = excluded.lease_token, fingerprint = excluded.fingerprint,
           stored_at = excluded.stored_at, result = excluded.result, failure = excluded.failure,
           provider = excluded.provider, number = excluded.number,
           brief_fingerprint = excluded.brief_fingerprint
     WHERE stages.status = 'started'
)
SELECT id::text, lease_token FROM held
