"""Migrates a SQLite file to the schema of this code, all or nothing."""

import sqlite3

from holdfast.ports import SchemaState
from holdfast.stores.queries import migrations
from holdfast.stores.schema_version import MIN_COMPATIBLE

MIGRATIONS = migrations(__package__)
EXPECTED = MIGRATIONS[-1][0]


def state(connection: sqlite3.Connection) -> SchemaState:
    """Return the version found; 0 if there is none."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_meta'").fetchone():
        return SchemaState(0, EXPECTED, 0)
    row = connection.execute("SELECT schema_version, min_compatible FROM holdfast_meta").fetchone()
    return SchemaState(row["schema_version"], EXPECTED, row["min_compatible"])


def apply(connection: sqlite3.Connection) -> SchemaState:
    """Run the missing migrations in the open transaction, and return the state before."""
    before = state(connection)
    for version, script in MIGRATIONS:
        if version > before.found:
            for statement in statements(script):
                connection.execute(statement)
            connection.execute(
                "UPDATE holdfast_meta SET schema_version = ?, min_compatible = ?", (version, MIN_COMPATIBLE)
            )
    return before


def statements(script: str) -> list[str]:
    """Split a script: `executescript` would commit the open transaction."""
    found, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found
