-- Facts for `holdfast doctor`. Only sessions that hold a snapshot in this database keep vacuum from cleaning its
-- tables.
SELECT name, setting
  FROM pg_settings
 WHERE name IN ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'max_connections',
                'superuser_reserved_connections', 'transaction_read_only', 'autovacuum')
 UNION ALL
SELECT 'connections', count(*)::text FROM pg_stat_activity WHERE backend_type = 'client backend'
 UNION ALL
SELECT 'oldest_snapshot_sec', coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::bigint::text
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()
   AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
 UNION ALL
SELECT 'oldest_prepared_sec', coalesce(max(extract(epoch FROM clock_timestamp() - prepared)), 0)::bigint::text
  FROM pg_prepared_xacts
 WHERE database = current_database()
 UNION ALL
SELECT 'jobs_autovacuum', coalesce(max(option_value), 'on')
  FROM pg_class, pg_options_to_table(reloptions)
 WHERE oid = to_regclass('holdfast.jobs')
   AND option_name = 'autovacuum_enabled'
 UNION ALL
SELECT 'now', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
 ORDER BY name
