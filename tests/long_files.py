"""Hands out the files of tests that take longest first: at the end of a run no process waits for another's long file.

Files that compute for long are between files whose tests mostly wait for processes and clocks, so that both kinds run
at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

LONG_FILES = (
    "tests/simulation/test_simulation.py",
    "tests/acceptance/test_kills.py",
    "tests/acceptance/test_killer_job.py",
    "tests/crashpoints/test_crashpoints.py",
    "tests/acceptance/test_clocks.py",
    "tests/acceptance/test_letters_on_disks.py",
    "tests/migration/test_rolling_upgrade.py",
    "tests/acceptance/test_provider_outage.py",
    "tests/planted/test_planted.py",
    "tests/acceptance/test_replays.py",
    "tests/acceptance/test_demo.py",
    "tests/contract/test_secrets.py",
    "tests/examples/test_contrib_django.py",
    "tests/acceptance/test_a_parent_and_its_children.py",
    "tests/stateful/test_stores_and_the_model.py",
)
"""From the root of the repository, in the order in which they are handed out."""

_PLACES = {file: place for place, file in enumerate(LONG_FILES)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of long files first; the others stay in their order."""
    items.sort(key=lambda item: _PLACES.get(item.nodeid.partition("::")[0], len(_PLACES)))
