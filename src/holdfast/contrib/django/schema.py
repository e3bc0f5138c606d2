"""Holdfast's tables, created by `manage.py migrate`."""

from typing import Any

from django.db import connections
from django.db.migrations import RunPython

from holdfast import Holdfast
from holdfast.contrib.django.database import database_url, in_memory
from holdfast.contrib.django.django_holdfast import schemas_of


def apply_schema() -> RunPython:
    """Return the operation that migrates a database to the newest schema; its reversal does nothing."""
    return RunPython(_apply, RunPython.noop)


def checkpoint_wal(using: str, **_: object) -> None:
    """Write SQLite's WAL to the database file after a migration: for parallel tests Django copies only the file.

    Holdfast enables the WAL. The checkpoint is passive: it does not wait for other connections.
    """
    connection = connections[using]
    if connection.vendor == "sqlite" and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _apply(_: Any, editor: Any) -> None:
    """Use a connection of Holdfast: its migrations are atomic, and may be run twice."""
    if in_memory(editor.connection):
        return  # a test database, which no worker can see
    alias = editor.connection.alias
    for schema in schemas_of(alias):
        hold = Holdfast(database_url(alias), schema=schema)
        try:
            hold.apply_schema_sync()
        finally:
            hold.close_sync()
