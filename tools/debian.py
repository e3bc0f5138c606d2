"""Installs what tests and checks need beside Python, where permitted: as root, on Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TIMEOUT_SECONDS = 600


class NotInstalledError(Exception):
    """Packages are missing and were not installed; the message says what to do."""


def may_install() -> bool:
    """Whether this is a Debian on which we are root."""
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def install(*packages: str) -> None:
    """Install *packages*. Raises `NotInstalledError` if that is not permitted, or fails."""
    names = " ".join(packages)
    if not may_install():
        raise NotInstalledError(f"Install {names} first (Debian: apt-get install {names}).")

    print(f"Installing {names} (apt-get) ...", file=sys.__stderr__, flush=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    apt_get = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]  # another process may be installing
    for command in ([*apt_get, "update"], [*apt_get, "install", "-y", *packages]):
        done = subprocess.run(
            command, env=quiet, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        )
        if done.returncode:
            raise NotInstalledError(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
