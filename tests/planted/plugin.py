"""Plants a bug in a whole run of pytest, and narrows it to the tests of one guarantee that need no server.

    python -m pytest -p tests.planted.plugin --plant drop-the-fence --shows JOB-6 tests/contract

It has no effect unless it is loaded with `-p`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.planted.bugs import planted

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--plant` and `--shows`."""
    parser.addoption("--plant", metavar="BUG", help="run with this bug in the engine")
    parser.addoption("--shows", metavar="ID", help="run only the tests that show this guarantee")


def pytest_configure(config: pytest.Config) -> None:
    """Plant the bug before any test is imported."""
    name = config.getoption("--plant")
    if name is not None:
        stack = ExitStack()
        stack.enter_context(planted(name))
        config.add_cleanup(stack.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that show the guarantee, on SQLite or without any store."""
    kept = [
        item for item in items if _shows(item, config.getoption("--shows")) and "postgres" not in item.nodeid
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _shows(item: pytest.Item, clause: str | None) -> bool:
    shown = {mark.args[0] for mark in item.iter_markers("clause")}
    return bool(shown) if clause is None else clause in shown
