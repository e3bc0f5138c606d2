"""What this machine may not have, and how it is got."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class PartMissingError(Exception):
    """A fault cannot be caused here; the message says what it would take."""


def install(package: str) -> None:
    """Install a Debian package where that is ours to do. Raises `PartMissingError` if it is not, or fails."""
    if not _may_install():
        raise PartMissingError(f"the Debian package {package} is not installed: apt-get install {package}")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", package]):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise PartMissingError(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")


def _may_install() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None
