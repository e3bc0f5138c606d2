"""Every scenario that the walk plays, by name."""

from __future__ import annotations

from tests.crashpoints.letter_scenarios import scenario as lettered
from tests.crashpoints.provider_scenarios import scenario as provided
from tests.crashpoints.scenarios import scenario as untimed
from tests.crashpoints.timed_scenarios import scenario as timed

SCENARIOS = untimed | timed | provided | lettered
