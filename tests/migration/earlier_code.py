"""The code of an earlier schema version, as it was: taken out of the repository's history.

No copy of it is kept here: a copy would have to be kept in step with the release that it represents, and
today's code with the earlier statements would be neither version. So the tests need the history: a clone
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
    # Also read a checkout that belongs to another user: nothing of it is run.
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except FileNotFoundError:
        raise NoHistoryError(f"{HOW} (git is not installed)") from None
    if done.returncode:
        raise NoHistoryError(f"{HOW} ({done.stderr.decode(errors='replace').strip()[:200]})")
    return done.stdout
