"""For the tests of your own jobs: virtual time, crashes, a provider that follows a script, jobs run inline."""

from holdfast.testing.inlining import inline
from holdfast.testing.provider import (
    Answer,
    Call,
    Crash,
    Hang,
    LostAnswer,
    RateLimited,
    ScriptedError,
    ScriptedProvider,
)
from holdfast.testing.simulating import Simulation, simulated, simulation
from holdfast.testing.virtual import Stuck

__all__ = [
    "Answer",
    "Call",
    "Crash",
    "Hang",
    "LostAnswer",
    "RateLimited",
    "ScriptedError",
    "ScriptedProvider",
    "Simulation",
    "Stuck",
    "inline",
    "simulated",
    "simulation",
]
