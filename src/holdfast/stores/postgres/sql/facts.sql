SELECT name, setting
  FROM pg_settings
 WHERE name IN ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'max_connections',
                'transaction_read_only', 'autovacuum')
 ORDER BY name
