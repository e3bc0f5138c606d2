"""Worker processes, their supervisor and their health."""
