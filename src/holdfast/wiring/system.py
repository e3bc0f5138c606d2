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
        self._pid = os.getpid()

    def job_id(self) -> str:
        if os.getpid() != self._pid:
            self.__init__()  # type: ignore[misc]  # a fork has inherited the dice: seed them again
        # 48 bits of milliseconds and 12 of their fractions, never twice the same in this process.
        stamp = max((time.time_ns() << 12) // 1_000_000, self._last + 1)
        self._last = stamp
        value = (
            (stamp >> 12) << 80
            | 0x7 << 76
            | (stamp & 0xFFF) << 64
            | 0b10 << 62
            | self._random.getrandbits(62)
        )
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def worker_id(self) -> str:
        return f"{socket.gethostname()}:{os.getpid()}:{self._random.getrandbits(24):06x}"
