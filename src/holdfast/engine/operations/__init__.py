"""Services for operators, on jobs, queues and schedules; those of dead letters and providers are in their packages."""
