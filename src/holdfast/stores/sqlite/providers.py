"""Providers and the jobs that are held for them, in a SQLite file."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from holdfast.core.providers.holder import Holder
from holdfast.ports import Clock, Hint, HintKind
from holdfast.ports.providers import KeyWrite, ProviderEvent, ProviderRow
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.times import EPOCH, MICROSECOND
from holdfast.stores.sqlite.writer import Writer


class SqliteProviders:
    """The `ProviderStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def read(self, names: Sequence[str]) -> tuple[float, dict[str, ProviderRow]]:
        rows = await self._reader.rows(SQL["providers"], {"names": json.dumps(list(names))})
        found = {row["name"]: ProviderRow(row["version"], row["state"]) for row in rows}
        return self._clock.now().timestamp(), found

    async def swap(
        self,
        name: str,
        version: int,
        state: str | None,
        events: Sequence[tuple[str, str]] = (),
        *,
        keys: Sequence[KeyWrite] = (),
    ) -> bool:
        values = {
            "name": name,
            "version": version,
            "state": state,
            "events": json.dumps(list(events)),
            "keys": json.dumps([[*key[:3], round(key.expires * 1e6)] for key in keys]),
        }
        return await self._writer.write(lambda connection, now: _swap(connection, {**values, "now": now}))

    async def read_keys(self, name: str, keys: Sequence[str]) -> dict[str, ProviderRow]:
        values = {"name": name, "keys": json.dumps(list(keys))}
        rows = await self._reader.rows(SQL["provider_keys"], values)
        return {row["key"]: ProviderRow(row["version"], row["state"]) for row in rows}

    async def delete_expired_keys(self, *, limit: int) -> int:
        return await self._writer.execute(SQL["delete_expired_provider_keys"], {"limit": limit})

    async def names(self) -> list[str]:
        return [row["name"] for row in await self._reader.rows(SQL["provider_names"], {})]

    async def events(self, name: str, *, limit: int) -> list[ProviderEvent]:
        rows = await self._reader.rows(SQL["provider_events"], {"name": name, "limit": limit})
        return [
            ProviderEvent(row["name"], EPOCH + row["at"] * MICROSECOND, row["kind"], json.loads(row["meta"]))
            for row in rows
        ]

    async def holders(self) -> list[Holder]:
        return list(map(Holder.parse, await self._reader.json(SQL["holders"], {})))

    async def count_held(self) -> dict[Holder, int]:
        rows = await self._reader.rows(SQL["held_jobs"], {})
        return {Holder.parse(row["held_by"]): row["jobs"] for row in rows}

    async def release(self, holder: Holder, *, limit: int) -> int:
        values = {"holder": holder.text, "limit": limit}
        rows = await self._writer.write(
            lambda connection, now: connection.execute(SQL["release_held"], {**values, "now": now}).fetchall()
        )
        for queue in {row["queue"] for row in rows}:
            self._reader.notify(Hint(HintKind.READY, queue))
        return len(rows)


def _swap(connection: sqlite3.Connection, values: dict[str, Any]) -> bool:
    """Write the state and its events, in the open transaction, if the version is still the same."""
    if values["keys"] != "[]":
        [outdated] = connection.execute(SQL["outdated_provider_keys"], values).fetchone()
        if outdated:
            return False
    statement = "swap_provider" if values["version"] else "add_provider"
    if values["state"] is not None and not connection.execute(SQL[statement], values).rowcount:
        return False
    if values["keys"] != "[]":
        connection.execute(SQL["write_provider_keys"], values)
    if values["events"] != "[]":
        connection.execute(SQL["provider_history"], values)
        connection.execute(SQL["delete_provider_events"], {"name": values["name"]})
    return True
