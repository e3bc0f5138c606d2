"""Clocks that are wrong and jump, by libfaketime.

Only the wall clock is faked. Durations are measured with the monotonic clock, which does not jump on a real
machine, either.
"""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.harness.prerequisites import PrerequisiteMissingError, install

PACKAGE = "libfaketime"
_SHARED = Path("/dev/shm")

_TRUSTS = 1
"""Whole seconds for which a process trusts the time that it has read."""


def faketime_library() -> Path:
    """Find the library, in the variant for programs with threads; install it where permitted."""
    found = _installed()
    if found is None:
        install(PACKAGE)
        found = _installed()
    if found is None:
        raise PrerequisiteMissingError(f"{PACKAGE} is installed, but its library is not where it should be")
    return found


def _installed() -> Path | None:
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


FOLLOWED_WITHIN = _TRUSTS + 1.1
"""Seconds after which a process reads the clock again, whenever in a second it did before."""


class WrongClock:
    """The clock of one machine. A process that runs under it follows each jump within `FOLLOWED_WITHIN`."""

    def __init__(self, file: Path, *, seconds: int) -> None:
        self._library = faketime_library()
        self._file = file
        self.jump_to(seconds)

    def jump_to(self, seconds: int) -> None:
        """Set the clock *seconds* ahead from now on, or behind if negative."""
        # Replaced as a whole: a reader must not meet an empty file.
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{seconds:+d}\n")
        draft.replace(self._file)
        self.seconds = seconds

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a process that uses this clock."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(_TRUSTS),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def forget(pid: int) -> None:
    """Remove what a process under a wrong clock leaves in shared memory when it is killed."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        (_SHARED / name).unlink(missing_ok=True)
