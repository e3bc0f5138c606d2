"""For tests of your own jobs: virtual time, crashes, a scripted provider, and jobs that run inline."""

from holdfast.testing.captured_messages import PublishedMessage
from holdfast.testing.inline import InlineJobs, inline
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
from holdfast.testing.simulation import Simulation, simulated, simulation
from holdfast.testing.virtual_loop import Stuck

__all__ = [
    "Answer",
    "Call",
    "Crash",
    "Hang",
    "InlineJobs",
    "LostAnswer",
    "PublishedMessage",
    "RateLimited",
    "ScriptedError",
    "ScriptedProvider",
    "Simulation",
    "Stuck",
    "inline",
    "simulated",
    "simulation",
]
