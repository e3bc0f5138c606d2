"""The system's clock, randomness and ids."""

import os
import random
import socket
import time
from datetime import UTC, datetime


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)


class SystemRandom:
    """Random numbers of the interpreter."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - spreads retries over time, keeps no secret

    def random(self) -> float:
        return self._random.random()


class SystemIds:
    """UUIDs of version 7: they sort by time, and within a process by the order of their creation."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - names need to be unique, not secret
        self._last = 0
        os.register_at_fork(
            after_in_child=self._random.seed
        )  # a child has inherited the state of the generator

    def job_id(self) -> str:
        # 48 bits of milliseconds and 12 of their fractions, never twice the same in this process.
        stamp = (time.time_ns() << 12) // 1_000_000
        if stamp <= self._last:
            stamp = self._last + 1
        self._last = stamp
        millis, bits = stamp >> 12, self._random.getrandbits(62)
        fields = (millis >> 16, millis & 0xFFFF, stamp & 0xFFF, 0x8000 | bits >> 48, bits & 0xFFFFFFFFFFFF)
        return "%08x-%04x-7%03x-%04x-%012x" % fields  # noqa: UP031 - twice as fast as an f-string here

    def worker_id(self) -> str:
        # Containers may share a host name and a process id: the random part distinguishes two workers.
        return f"{socket.gethostname()}:{os.getpid()}:{self._random.getrandbits(48):012x}"
