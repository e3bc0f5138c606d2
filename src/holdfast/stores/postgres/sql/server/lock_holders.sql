-- Who holds a lock that session $1 waits for, the oldest transaction first. Of other users' sessions only the
-- superuser, or a member of pg_read_all_stats, sees more than their name.
SELECT pid, coalesce(application_name, '') AS application, coalesce(usename, '') AS user, coalesce(state, '') AS state,
       xact_start AS since
  FROM pg_stat_activity
 WHERE pid = ANY (pg_blocking_pids($1))
 ORDER BY xact_start, pid
 LIMIT 5
