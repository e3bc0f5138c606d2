"""The machine's own clock, chance and names."""

import os
import random
import socket
import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class SystemDice:
    """The interpreter's chance."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - spreads retries over time, keeps no secret

    def roll(self) -> float:
        return self._random.random()


class SystemIds:
    """UUIDs of version 7: they sort by time, and within a process by the order of their making."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - names need to be unique, not secret
        self._last = 0
        os.register_at_fork(after_in_child=self._random.seed)  # a child has inherited the dice

    def job_id(self) -> str:
        # 48 bits of milliseconds and 12 of their fractions, never twice the same in this process.
        stamp = max((time.time_ns() << 12) // 1_000_000, self._last + 1)
        self._last = stamp
        millis, chance = stamp >> 12, self._random.getrandbits(62)
        head = f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7{stamp & 0xFFF:03x}"
        return f"{head}-{0x8000 | chance >> 48:04x}-{chance & 0xFFFFFFFFFFFF:012x}"

    def worker_id(self) -> str:
        return f"{socket.gethostname()}:{os.getpid()}:{self._random.getrandbits(24):06x}"
