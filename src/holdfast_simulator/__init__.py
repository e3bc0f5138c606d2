"""A provider that fails on purpose: an HTTP server with scripted faults and a log of every call.

It is independent of the engine. Tests and demos call it as they would call an external service, and
afterwards compare the state of the engine with the log of the provider.
"""

from holdfast_simulator.codec import ScriptError
from holdfast_simulator.faults import (
    DOWN,
    Close,
    Drip,
    Fault,
    Flood,
    Hang,
    Hint,
    InvalidJson,
    Moment,
    OverloadedStream,
    RateLimit,
    Refuse,
    Reset,
    Slow,
    Status,
    Truncate,
    WrongSchema,
)
from holdfast_simulator.log import Counts, Entry, count, read_log
from holdfast_simulator.models import chat_text
from holdfast_simulator.script import Rule, Script
from holdfast_simulator.server import Simulator

__all__ = [
    "DOWN",
    "Close",
    "Counts",
    "Drip",
    "Entry",
    "Fault",
    "Flood",
    "Hang",
    "Hint",
    "InvalidJson",
    "Moment",
    "OverloadedStream",
    "RateLimit",
    "Refuse",
    "Reset",
    "Rule",
    "Script",
    "ScriptError",
    "Simulator",
    "Slow",
    "Status",
    "Truncate",
    "WrongSchema",
    "chat_text",
    "count",
    "read_log",
]
