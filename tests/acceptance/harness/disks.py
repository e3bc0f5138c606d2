"""A disk that can be filled: a small tmpfs, and a file that takes the remaining space."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.acceptance.harness.prerequisites import PrerequisiteMissingError

MEGABYTE = 1 << 20
_BLOCK = 4_096


class SmallDisk:
    """A disk of its own in a temporary folder, gone after the context, and also if this process is killed.

    Making one needs the right to mount: root, and not in a container that forbids it. Raises
    `PrerequisiteMissingError` without it.
    """

    def __init__(self, megabytes: int) -> None:
        self._size = megabytes * MEGABYTE
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(self.folder)]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        except (OSError, subprocess.CalledProcessError) as error:
            self.folder.rmdir()
            why = getattr(error, "stderr", "") or str(error)
            raise PrerequisiteMissingError(
                f"a small disk cannot be mounted here, which takes root: {why.strip()}"
            ) from error
        self._watcher = self._watch()
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.communicate()

    def fill(self) -> None:
        """Fill the disk completely."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (MEGABYTE, _BLOCK):
                _write_until_full(ballast.fileno(), bytes(size))

    def free(self) -> None:
        """Free the space again."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def _watch(self) -> subprocess.Popen[bytes]:
        """Start the shell that cleans up once our end of its standard input is closed, however that happens."""
        return subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; umount -l "$0"; rmdir "$0"', self.folder],
            stdin=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )


def _write_until_full(file: int, block: bytes) -> None:
    try:
        while True:
            os.write(file, block)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
