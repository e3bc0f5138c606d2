"""Creates and upgrades the tables of Holdfast in `manage.py migrate`."""

from typing import Any

from django.db import connections
from django.db.migrations import RunPython

from holdfast import Holdfast
from holdfast.contrib.django.database import database_url, in_memory
from holdfast.contrib.django.face import schemas_of


def apply_schema() -> RunPython:
    """Return the operation that upgrades a database to the newest schema; reversing it changes nothing."""
    return RunPython(_apply, RunPython.noop)


def write_out(using: str, **_: object) -> None:
    """Write SQLite's write-ahead log into the file: for parallel tests Django copies only the file.

    The log is there because Holdfast sets the journal mode. Other connections are not waited for.
    """
    connection = connections[using]
    if connection.vendor == "sqlite" and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _apply(_: Any, editor: Any) -> None:
    """Apply the schema on a separate connection: it is atomic on its own, and may be applied twice."""
    if in_memory(editor.connection):
        return  # the database of a test, which no worker can see
    alias = editor.connection.alias
    for schema in schemas_of(alias):
        hold = Holdfast(database_url(alias), schema=schema)
        try:
            hold.apply_schema_sync()
        finally:
            hold.close_sync()
