-- Stores a signal for a live job. send_signal, wake_signalled and signal_history run in one transaction.
INSERT INTO holdfast_signals (job_id, number, name, data, sent_at)
SELECT id, signals + 1, :name, :data, :now
  FROM holdfast_jobs
 WHERE id = :id
   AND (:owner IS NULL OR owner = :owner)
   AND signals < :most
