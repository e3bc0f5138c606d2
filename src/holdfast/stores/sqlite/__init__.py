"""The embedded store: one file, no server."""
