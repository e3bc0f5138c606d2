"""Packages and rights that this machine may lack, and how to install them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class PrerequisiteMissingError(Exception):
    """A fault cannot be injected here; the message says what is missing."""


def install(package: str) -> None:
    """Install a Debian package where permitted. Raises `PrerequisiteMissingError` if it is not, or fails."""
    if not _may_install():
        raise PrerequisiteMissingError(
            f"the Debian package {package} is not installed: apt-get install {package}"
        )
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", package]):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise PrerequisiteMissingError(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")


def _may_install() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None
