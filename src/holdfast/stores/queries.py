"""Reads SQL from files: one query per file, named after what it does, in a folder for its subject.

What several queries of a store share is in the folder `fragments`: `{name}` in a query stands for the fragment's text.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from holdfast.stores.letter_rows import LETTER

_LETTER = [
    column for column in LETTER if column != "job_id"
]  # each store reads and writes that one in its own type
COLUMN_LISTS = {
    "{letter_columns}": ", ".join(_LETTER),
    "{letter_values}": ", ".join(f":{column}" for column in _LETTER),
}
"""Placeholders in the files for the columns of a dead letter, which are its fields and are listed nowhere else."""


FRAGMENTS = "fragments"


class Queries:
    """The queries of one store, read once per process and rewritten by *qualify* for the schema of its tables.

    >>> Queries("holdfast.stores.postgres")["claim"].startswith("--")
    True
    """

    def __init__(self, package: str, qualify: Callable[[str], str] = str) -> None:
        self._texts = {name: qualify(sql) for name, sql in _read_queries(package).items()}

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


def migrations(package: str) -> list[tuple[int, str]]:
    """Return the migrations of one store as (version, script), in order."""
    folder = resources.files(package).joinpath("migrations")
    files = sorted(_sql_files(folder), key=lambda file: file.name)
    return [(int(file.name[:4]), file.read_text()) for file in files]


@cache
def _read_queries(package: str) -> Mapping[str, str]:
    folders = list(resources.files(package).joinpath("sql").iterdir())
    texts = {folder.name: _read_folder(folder) for folder in folders}
    fragments = {f"{{{name}}}": text for name, text in texts.pop(FRAGMENTS).items()}
    return {
        name: _substituted(text, COLUMN_LISTS | fragments)
        for queries in texts.values()
        for name, text in queries.items()
    }


def _read_folder(folder: Traversable) -> dict[str, str]:
    return {file.name[:-4]: file.read_text() for file in _sql_files(folder)}


def _substituted(sql: str, texts: Mapping[str, str]) -> str:
    for placeholder, text in texts.items():
        sql = sql.replace(placeholder, text)
    return sql


def _sql_files(folder: Traversable) -> list[Traversable]:
    return [file for file in folder.iterdir() if file.name.endswith(".sql")]
