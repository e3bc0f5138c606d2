"""Services for dead letters: replay, notification, archive, restore."""
