"""The name of a worker in a fleet, from which another process of the same machine can tell whether it is dead.

A process id alone is not enough: containers have process ids of their own, and one that has ended may be given to
another process. So the name has the machine, its boot, the namespace of process ids, and when the process started.
"""

import os
import secrets
import socket
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_UNKNOWN = "-"


def fleet_worker_name() -> str:
    """Return a name for a worker in this process: a new one at each call."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_machine()}.{_started(pid) or _UNKNOWN}.{secrets.token_hex(4)}"


def is_dead(worker: str) -> bool:
    """Whether the process of a worker has ended, as far as this process can know: never for one of another machine."""
    host, _, rest = worker.partition(":")
    pid, _, identity = rest.partition(":")
    machine, started, *_ = [*identity.split("."), _UNKNOWN, _UNKNOWN]
    if host != socket.gethostname() or machine != _machine() or _UNKNOWN in (machine, started):
        return False
    return pid.isdecimal() and _started(int(pid)) != started


@cache
def _machine() -> str:
    """Return the boot of this machine and the namespace of its process ids; a dash where the system has neither."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")[:12]
        namespace = (_PROC / "self/ns/pid").stat().st_ino
    except OSError:
        return _UNKNOWN
    return f"{boot}-{namespace:x}"


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since the boot; `None` if there is no such process, or it is a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name in parentheses may contain anything
    return None if state in "ZX" else fields[18]
