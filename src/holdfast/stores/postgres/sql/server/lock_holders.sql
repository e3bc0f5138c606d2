-- Sessions that hold a lock for which session $1 waits, the oldest transaction first. Only a superuser, or a member
-- of pg_read_all_stats, sees more than the name of other users' sessions.
SELECT pid, coalesce(application_name, '') AS application, coalesce(usename, '') AS user, coalesce(state, '') AS state,
       xact_start AS since
  FROM pg_stat_activity
 WHERE pid = ANY (pg_blocking_pids($1))
 ORDER BY xact_start, pid
 LIMIT 5
