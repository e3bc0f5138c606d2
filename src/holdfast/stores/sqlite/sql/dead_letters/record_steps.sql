-- Records who took steps with letters, and why, in their order. [[state, actor, reason, meta], ...]
INSERT INTO holdfast_letter_steps (job_id, seq, at, state, actor, reason, meta)
SELECT requested.value,
       step.key + 1 + coalesce((SELECT max(seq) FROM holdfast_letter_steps WHERE job_id = requested.value), 0),
       :now, step.value ->> 0, step.value ->> 1, step.value ->> 2, step.value ->> 3
  FROM json_each(:ids) AS requested
 CROSS JOIN json_each(:steps) AS step
