"""How PostgreSQL carries out a statement of the store: by which indexes, over how many rows and pages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from holdfast.stores.postgres.connections import SESSION
from holdfast.stores.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Connection = asyncpg.Connection[asyncpg.Record]

SQL = Queries("holdfast.stores.postgres")

Value = str | int | None


@dataclass(frozen=True)
class Plan:
    """A statement that was carried out, as EXPLAIN ANALYZE reports it."""

    root: dict[str, Any]
    micros: int

    def nodes(self, kind: str = "") -> list[dict[str, Any]]:
        """All steps of the plan, or those of one *kind*."""
        return [node for node in _walk(self.root) if kind in ("", node["Node Type"])]

    @property
    def indexes(self) -> set[str]:
        """The indexes that rows were looked up in, that of the clock's one row aside."""
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node} - {"meta_pkey"}

    @property
    def unguided(self) -> list[str]:
        """The indexes that were read from end to end, for want of a condition."""
        return [
            node["Index Name"] for node in self.nodes() if "Index Name" in node and "Index Cond" not in node
        ]

    @property
    def most_sorted(self) -> int:
        """The most rows that any step sorted."""
        return max((_rows(node) for node in self.nodes("Sort")), default=0)

    @property
    def buffers(self) -> int:
        """The pages touched. A node without a reader is written after the root has ended, and counts on its own."""
        read = {node["CTE Name"] for node in self.nodes("CTE Scan")}
        late = [
            node
            for node in self.nodes("ModifyTable")
            if node.get("Subplan Name", "CTE ").removeprefix("CTE ") not in read | {""}
        ]
        return sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in (self.root, *late))

    @property
    def visits(self) -> int:
        """The rows that all steps together looked at, kept or not: a join of two lists shows as their product."""
        return sum(_rows(node) for node in self.nodes())


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _walk(child)


def _rows(node: dict[str, Any]) -> int:
    dropped = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")
    each = node["Actual Rows"] + sum(node.get(name, 0) for name in dropped)
    return int(each * node["Actual Loops"])


async def connect(dsn: str) -> Connection:
    """Connect with the settings that the store gives each of its sessions."""
    return await asyncpg.connect(dsn, server_settings=SESSION)


async def carry_out(connection: Connection, name: str, *values: Value | Sequence[Value]) -> Plan:
    """Run a statement of the store as the store does, prepared and with a generic plan; then take it back."""
    statement = await connection.prepare(SQL[name])
    call = statement.get_name() + (f"({', '.join(map(_literal, values))})" if values else "")
    change = connection.transaction()
    await change.start()
    try:
        report = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {call}")
    finally:
        await change.rollback()
    [plan] = json.loads(report)
    return Plan(plan["Plan"], round(plan["Execution Time"] * 1000))


def _literal(value: Value | Sequence[Value]) -> str:
    """Write a value into the call: EXPLAIN EXECUTE takes no parameters of its own."""
    if value is None:
        return "NULL"
    if isinstance(value, str | int):
        return f"'{value}'"
    return f"'{{{','.join(_element(item) for item in value)}}}'"


def _element(item: Value) -> str:
    return "NULL" if item is None else json.dumps(str(item))
