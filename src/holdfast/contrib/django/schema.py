"""Holdfast's tables, made by `manage.py migrate`."""

from typing import Any

from django.db import connections
from django.db.migrations import RunPython

from holdfast import Holdfast
from holdfast.contrib.django.database import database_url, in_memory
from holdfast.contrib.django.face import schemas_of


def apply_schema() -> RunPython:
    """Make the operation that brings a database to the newest schema; undone, it leaves the jobs where they are."""
    return RunPython(_apply, RunPython.noop)


def write_out(using: str, **_: object) -> None:
    """Bring what was migrated from SQLite's log into the file: for parallel tests Django copies the file alone.

    It is Holdfast that has SQLite keep a log. Nobody is waited for.
    """
    connection = connections[using]
    if connection.vendor == "sqlite" and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _apply(_: Any, editor: Any) -> None:
    """Use a connection of our own: a migration of ours is all or nothing by itself, and may be run twice."""
    if in_memory(editor.connection):
        return  # of a test, in which no worker could see them
    alias = editor.connection.alias
    for schema in schemas_of(alias):
        hold = Holdfast(database_url(alias), schema=schema)
        try:
            hold.apply_schema_sync()
        finally:
            hold.close_sync()
