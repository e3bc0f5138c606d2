"""Messages in the database: outbox, announcements and inbox."""
