-- The rows of claims as one row of JSON: their ids, and what they return.
SELECT json_group_array(id),
       json_group_array(json_array(id, name, queue, owner, args, max(attempt - (excused = 1), 0) + 1, generation,
                                   lease_token + 1, max(losses - (excused = 1), 0), stages, cancel_requested, trace,
                                   (deadline_at - :now) / 1e6, signals, let_out_by, failed_runs,
                                   excused > 0))
