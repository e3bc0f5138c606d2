"""The code of an earlier schema version, as it was: taken out of the repository's history.

Nothing stands for it here. A frozen copy would be ours to keep in step with a release that it is meant to
test, and today's code with yesterday's statements would be neither. So the tests want the history: a clone
without it (`git clone --depth 1`) has to fetch the rest.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIGRATIONS = "src/holdfast/stores/postgres/migrations"


class NoHistoryError(Exception):
    """The repository's history is not here; the message says how to get it."""


def code_before(migration: str, folder: Path) -> Path:
    """Unpack the sources as they were before *migration* (such as "0002") was added; give what to import from.

    Before one that is not committed yet, they were as they are in the last commit. Raises `NoHistoryError`.
    """
    added = _git("log", "--format=%H", "--diff-filter=A", "--", f"{MIGRATIONS}/{migration}_*").decode()
    archive = _git("archive", f"{added.split()[-1]}^" if added.strip() else "HEAD", "src")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
        tree.extractall(folder, filter="data")
    return folder / "src"


HOW = "this test runs code of an earlier commit: clone with history, or run `git fetch --unshallow`"


def _git(*words: str) -> bytes:
    # A checkout that belongs to somebody else is read all the same: nothing of it is run.
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except FileNotFoundError:
        raise NoHistoryError(f"{HOW} (git is not installed)") from None
    if done.returncode:
        raise NoHistoryError(f"{HOW} ({done.stderr.decode(errors='replace').strip()[:200]})")
    return done.stdout
