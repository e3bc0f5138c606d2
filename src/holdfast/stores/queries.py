"""SQL lives in files: one query, one file, named like what it does, in a folder for its subject."""

from collections.abc import Callable, Iterator
from importlib import resources
from importlib.resources.abc import Traversable


class Statements:
    """The queries of one store, read once, and then rewritten by *place* for where its tables are.

    >>> Statements("holdfast.stores.postgres")["claim"].startswith("--")
    True
    """

    def __init__(self, package: str, place: Callable[[str], str] = str) -> None:
        folders = resources.files(package).joinpath("sql").iterdir()
        self._texts = {
            file.name[:-4]: place(file.read_text()) for folder in folders for file in _sql_files(folder)
        }

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


def migrations(package: str) -> list[tuple[int, str]]:
    """Give the migrations of one store as (version, script), in order."""
    folder = resources.files(package).joinpath("migrations")
    files = sorted(_sql_files(folder), key=lambda file: file.name)
    return [(int(file.name[:4]), file.read_text()) for file in files]


def _sql_files(folder: Traversable) -> list[Traversable]:
    return [file for file in folder.iterdir() if file.name.endswith(".sql")]
