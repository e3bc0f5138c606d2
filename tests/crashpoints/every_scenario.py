"""Every scenario that the walk plays, by name."""

from __future__ import annotations

from tests.crashpoints.fleet_scenarios import scenario as dispatched
from tests.crashpoints.letter_scenarios import scenario as lettered
from tests.crashpoints.message_scenarios import scenario as messaged
from tests.crashpoints.provider_scenarios import scenario as provided
from tests.crashpoints.scenarios import scenario as untimed
from tests.crashpoints.timed_scenarios import scenario as timed

SCENARIOS = untimed | timed | provided | lettered | messaged | dispatched
