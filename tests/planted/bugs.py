"""All deliberate bugs by name: what a tired programmer would have written instead.

`with planted("drop-the-fence"):` runs a block with one of them in place.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.planted import (
    engine_bugs,
    fleet_bugs,
    lease_bugs,
    letter_bugs,
    message_bugs,
    provider_bugs,
    stage_bugs,
    submission_bugs,
    time_bugs,
    verdict_bugs,
    wait_bugs,
)
from tests.planted.planting import all_planted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.planted.planting import Bug

BUGS: dict[str, Bug] = {
    bug.name: bug
    for module in (
        lease_bugs,
        engine_bugs,
        stage_bugs,
        submission_bugs,
        time_bugs,
        verdict_bugs,
        wait_bugs,
        provider_bugs,
        letter_bugs,
        message_bugs,
        fleet_bugs,
    )
    for bug in module.BUGS
}


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """Run a block with the bug *name* in the engine."""
    bug = BUGS[name]
    with all_planted(bug.patches):
        yield bug
