"""Tables are read again only where something was written: what is not read again is as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation.files import Tables
from tests.simulation.simulation import simulate

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

ARCHIVED = 36
PROVIDED = 27


@pytest.mark.parametrize("seed", [ARCHIVED, PROVIDED])
def test_what_the_auditor_does_not_read_again_has_not_changed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_read_again: set[str] = set()
    read = Tables.read

    def compared(self: Tables, sql: str, collect: Callable[[sqlite3.Cursor], Any]) -> Any:
        before = self._kept.get(sql)
        kept = read(self, sql, collect)
        if kept is before:
            not_read_again.add(sql)
            assert kept == collect(self._connection.execute(sql)), sql
        return kept

    monkeypatch.setattr(Tables, "read", compared)

    outcome = simulate(seed)

    assert outcome.violations == []
    assert len(not_read_again) > 5
