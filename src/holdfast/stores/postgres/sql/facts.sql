SELECT name, setting
  FROM pg_settings
 WHERE name IN ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'max_connections',
                'superuser_reserved_connections', 'transaction_read_only', 'autovacuum')
 UNION ALL
SELECT 'connections', count(*)::text FROM pg_stat_activity WHERE backend_type = 'client backend'
 UNION ALL
SELECT 'now', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
 ORDER BY name
