"""An archive in a folder. A file in it is complete and on the disk, or it does not exist."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from holdfast.core.dead_letters.archive_format import ensure_name, ensure_size
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing, ArchiveUnavailable
from holdfast.ports.system import Executor

T = TypeVar("T")

PART = ".part"
FULL = {errno.ENOSPC, errno.EDQUOT}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP}


class FolderArchive:
    """Files of one folder, which is created by the first write, with access for its owner only.

    Its file system must support hard links. A process that is killed while it writes may leave a file whose name
    begins with a dot: it is never read, and it can be deleted.
    """

    def __init__(self, path: str | Path, *, executor: Executor) -> None:
        self._folder = Path(path).absolute()
        self._executor = executor

    async def put(self, name: str, data: bytes) -> None:
        path = self._folder / ensure_name(name)
        await self._run(lambda: _put(path, data))

    async def get(self, name: str, *, at_most: int) -> bytes:
        path = self._folder / ensure_name(name)
        return await self._run(lambda: _get(path, at_most))

    async def names(self) -> list[str]:
        return await self._run(lambda: _names(self._folder))

    async def _run(self, function: Callable[[], T]) -> T:
        try:
            with _translate_errors(self._folder):
                return await self._executor.run(function)
        except RuntimeError as error:
            raise ArchiveUnavailable(
                f"the archive {str(self._folder)!r} cannot be reached: {error}"
            ) from error


def _put(path: Path, data: bytes) -> None:
    _ensure_folder(path.parent)
    part = _write_part(path.parent, data)
    try:
        # Unlike a rename, a link does not replace an existing file.
        os.link(part, path)
    except FileExistsError:
        _ensure_same(path, data)
    finally:
        part.unlink()
    # Also if the file exists: the process that wrote it may have died before this line.
    _sync(path.parent)


def _get(path: Path, at_most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(at_most + 1)
    except FileNotFoundError:
        raise ArchiveMissing(
            f"the archive {str(path.parent)!r} has no {path.name!r}; check that it is the right folder"
        ) from None
    return ensure_size(path.name, data, at_most)


def _names(folder: Path) -> list[str]:
    try:
        found = [entry.name for entry in os.scandir(folder) if entry.is_file()]
    except FileNotFoundError:
        # Not treated as empty: an archive whose disk is not mounted looks the same, and may hold the only copy of a letter.
        raise ArchiveUnavailable(
            f"there is no folder {str(folder)!r} yet; it is created when the first letter is archived; "
            "if it existed before, check the path, and that its disk is mounted"
        ) from None
    return sorted(name for name in found if not name.startswith("."))


def _ensure_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _ensure_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync(folder.parent)


def _write_part(folder: Path, data: bytes) -> Path:
    """Write *data* to the disk in a hidden temporary file, readable by its owner only."""
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


def _ensure_same(path: Path, data: bytes) -> None:
    if path.read_bytes() != data:
        raise ArchiveDamaged(
            f"the archive has different data under {str(path)!r}, which was not changed; "
            "inspect it, and move it away if it does not belong there"
        )


def _sync(folder: Path) -> None:
    """Flush the entries of *folder* to the disk: without this, a loss of power can remove the name of a flushed file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _translate_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArchiveUnavailable(_explain(error, str(folder))) from error


def _explain(error: OSError, folder: str) -> str:
    if error.errno in FULL:
        return f"the disk of the archive {folder!r} is full; free some space on it"
    if error.errno in FORBIDDEN:
        return (
            f"the archive {folder!r} cannot be written: {error.strerror}; "
            "give this user write permission, on a file system that supports hard links"
        )
    return f"the archive {folder!r} cannot be used: {error}; check that it is a folder, and that its disk is mounted"
