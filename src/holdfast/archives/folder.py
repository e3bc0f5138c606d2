"""An archive in a folder. What is in it is whole and on the disk, or it is not in it."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from holdfast.core.dead_letters.archive_format import ensure_name, ensure_size
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing, ArchiveUnavailable
from holdfast.ports.world import Executor

T = TypeVar("T")

PART = ".part"
FULL = {errno.ENOSPC, errno.EDQUOT}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP}


class FolderArchive:
    """Files of one folder, which is made when it is first written to, for its owner alone.

    Its file system must know hard links. A process that is killed while it writes may leave a file behind whose
    name begins with a dot: it is never read, and can be deleted.
    """

    def __init__(self, path: str | Path, *, executor: Executor) -> None:
        self._folder = Path(path).absolute()
        self._executor = executor

    async def put(self, name: str, data: bytes) -> None:
        place = self._folder / ensure_name(name)
        await self._run(lambda: _put(place, data))

    async def get(self, name: str, *, at_most: int) -> bytes:
        place = self._folder / ensure_name(name)
        return await self._run(lambda: _get(place, at_most))

    async def names(self) -> list[str]:
        return await self._run(lambda: _names(self._folder))

    async def _run(self, function: Callable[[], T]) -> T:
        try:
            with _translated(self._folder):
                return await self._executor.run(function)
        except RuntimeError as error:
            raise ArchiveUnavailable(
                f"the archive {str(self._folder)!r} cannot be reached: {error}"
            ) from error


def _put(place: Path, data: bytes) -> None:
    _ensure_folder(place.parent)
    part = _write_part(place.parent, data)
    try:
        # Unlike a rename, a link replaces nothing.
        os.link(part, place)
    except FileExistsError:
        _ensure_same(place, data)
    finally:
        part.unlink()
    # Also if it was there: the process that put it may have died right before this.
    _sync(place.parent)


def _get(place: Path, at_most: int) -> bytes:
    try:
        with place.open("rb") as file:
            data = file.read(at_most + 1)
    except FileNotFoundError:
        raise ArchiveMissing(
            f"the archive {str(place.parent)!r} has no {place.name!r}; check that it is the right folder"
        ) from None
    return ensure_size(place.name, data, at_most)


def _names(folder: Path) -> list[str]:
    try:
        found = [entry.name for entry in os.scandir(folder) if entry.is_file()]
    except FileNotFoundError:
        # Not an empty archive: one whose disk is not mounted looks the same, and may hold the only copy of a letter.
        raise ArchiveUnavailable(
            f"there is no folder {str(folder)!r} yet, which is made with the first letter that is archived; "
            "if there was one, check the path, and that its disk is mounted"
        ) from None
    return sorted(name for name in found if not name.startswith("."))


def _ensure_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _ensure_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync(folder.parent)


def _write_part(folder: Path, data: bytes) -> Path:
    """Have *data* on the disk under a name that is not looked for, readable by its owner alone."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=PART)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def _ensure_same(place: Path, data: bytes) -> None:
    if place.read_bytes() != data:
        raise ArchiveDamaged(
            f"the archive has something else under {str(place)!r} already, which was left as it is; "
            "look at it, and move it away if it does not belong there"
        )


def _sync(folder: Path) -> None:
    """Have the names in *folder* survive a loss of power: a file that was written safely may still lose its name."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArchiveUnavailable(_meaning(error, str(folder))) from error


def _meaning(error: OSError, folder: str) -> str:
    if error.errno in FULL:
        return f"the disk of the archive {folder!r} is full; free some space on it"
    if error.errno in FORBIDDEN:
        return (
            f"the archive {folder!r} cannot be written: {error.strerror}; "
            "give this user the right to, on a file system that has hard links"
        )
    return f"the archive {folder!r} cannot be used: {error}; check that it is a folder, and its disk is there"
