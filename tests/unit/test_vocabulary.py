"""The code speaks the words of the field: retired words do not come back, and a name means one thing."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.pages import DOCS, ROOT, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = ROOT / "src/holdfast"
MODULES = sorted(SOURCE.rglob("*.py"))
TEXTS = {
    "src": [file for kind in ("*.py", "*.sql", "*.txt") for file in sorted((ROOT / "src").rglob(kind))],
    "docs": [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))],
}
PAGES = [DOCS / "explanation/glossary.md", DOCS / "explanation/how-it-works.md"]

RETIRED = {
    "archivist",
    "burial",
    "bury",
    "bustle",
    "clerk",
    "clerks",
    "deaf",
    "deafen",
    "desk",
    "desks",
    "dice",
    "dossier",
    "everybody",
    "face",
    "fate",
    "fates",
    "figure",
    "figures",
    "fleeting",
    "gate",
    "gates",
    "hurried",
    "hurry",
    "inlining",
    "insist",
    "journal",
    "judge",
    "judged",
    "judgement",
    "lap",
    "laps",
    "lend",
    "loan",
    "marks",
    "mend",
    "mended",
    "news",
    "nobody",
    "patience",
    "somebody",
    "standing",
    "stranger",
    "strangers",
    "suspects",
    "suspicion",
    "sweeper",
    "teller",
    "tellers",
    "telling",
    "ticker",
    "told",
    "tools",
    "unwinding",
    "whoever",
    "wording",
}

RETIRED_IN_PROSE = {
    "bustle",
    "clerk",
    "clerks",
    "desk",
    "desks",
    "dice",
    "dossier",
    "everybody",
    "fates",
    "mend",
    "mended",
    "mends",
    "nobody",
    "patience",
    "somebody",
    "stranger",
    "strangers",
    "teller",
    "tellers",
    "told",
    "whoever",
}
"""Words that name no actor, or name one by a metaphor: also in docstrings, comments, strings and pages."""

STORED = {
    "told_at": "a column of the tickets in every database",
    "If it was told, it told of an earlier failure.": "a comment in the body of a trigger, which databases keep",
}
"""What may contain a retired word because databases store it, each with its reason."""

SPOKEN = (
    "app",
    "cli",
    "contrib",
    "engine/operations",
    "errors.py",
    "operations.py",
    "types.py",
    "__init__.py",
)
"""Where every word may be read by a user: in help texts, error messages and docstrings of public names."""

RETIRED_PHRASES = re.compile(
    r"\b(?:anew|by itself|is told|let go of|nobody|out of hand|sealed|so many|somebody|told|usual|whoever|with one accord)\b",
    re.IGNORECASE,
)

DEFINED_MORE_THAN_ONCE = {
    "Migration": "Django looks for a class of this name in each migration",
    "Settings": "those of an application, and the base of what arq calls the settings of a worker",
}

MOST_MODULES = 12
LARGER_PACKAGES = {
    "stores/sqlite": "one module for each part of the Store port, and the threads, forks and times that a server would handle"
}


def words_of(identifier: str) -> set[str]:
    """Split *identifier* at underscores and capitals: `_HTTPServer_port` has the words http, server and port."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each line of *file* with its number; of a query only its comment, since its names are those of the schema."""
    for number, line in enumerate(read(file).splitlines(), start=1):
        yield number, line.partition("--")[2] if file.suffix == ".sql" else line


def retired_in(text: str) -> list[str]:
    """Return the names and words of *text* that contain a retired word."""
    for stored in STORED:
        text = re.sub(rf"(?<!\w){re.escape(stored)}(?!\w)", "", text)
    return [name for name in re.findall(r"[A-Za-z_]+", text) if words_of(name) & RETIRED_IN_PROSE]


def identifiers(module: Path) -> Iterator[tuple[int, str]]:
    """Yield each identifier of *module* with its line, and the names in its path as line 0."""
    for part in module.relative_to(SOURCE).with_suffix("").parts:
        yield 0, part
    with tokenize.open(module) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("lease_token", {"lease", "token"}),
        ("_LeaseKeeper", {"lease", "keeper"}),
        ("MAX_KEY_LENGTH", {"max", "key", "length"}),
        ("HTTPServer2", {"http", "server"}),
    ],
)
def test_an_identifier_is_split_at_underscores_and_capitals(identifier: str, words: set[str]) -> None:
    assert words_of(identifier) == words


def test_no_identifier_uses_a_retired_word() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{line}: {identifier}"
        for module in MODULES
        for line, identifier in identifiers(module)
        if words_of(identifier) & RETIRED
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "retired"),
    [
        ("Nobody was told.", ["Nobody", "told"]),
        ("def page_somebody(ticket): ...", ["page_somebody"]),
        ("told_at is the time of the notification", []),
        ("tickets_told_at", ["tickets_told_at"]),
        ("We recommend the desktop; a toll booth is amended", []),
    ],
)
def test_a_retired_word_is_found_in_prose_as_a_word_and_in_a_name(text: str, retired: list[str]) -> None:
    assert retired_in(text) == retired


def test_of_a_query_only_the_comments_are_prose(tmp_path: Path) -> None:
    query = tmp_path / "query.sql"
    query.write_text("-- One.\nSELECT 2 -- Three.\n", encoding="utf-8")

    assert list(prose(query)) == [(1, " One."), (2, " Three.")]


@pytest.mark.parametrize("where", TEXTS)
def test_no_docstring_comment_string_or_page_has_a_retired_word(where: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {text.strip()}"
        for file in TEXTS[where]
        for number, text in prose(file)
        if retired_in(text)
    ]

    assert found == []


def test_every_stored_text_with_a_retired_word_is_still_in_use() -> None:
    text = "\n".join(read(file) for file in TEXTS["src"])

    assert [stored for stored in STORED if stored not in text] == []


def test_nothing_that_a_user_reads_has_a_retired_phrase() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{number}: {line.strip()}"
        for module in MODULES
        if module.relative_to(SOURCE).as_posix().startswith(SPOKEN)
        for number, line in enumerate(read(module).splitlines(), start=1)
        if RETIRED_PHRASES.search(line)
    ]

    assert found == []


def test_a_public_class_name_is_defined_once() -> None:
    defined = defaultdict(list)
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(str(module.relative_to(ROOT)))

    repeated = {name: places for name, places in defined.items() if len(places) > 1}

    assert {name: places for name, places in repeated.items() if name not in DEFINED_MORE_THAN_ONCE} == {}
    assert set(DEFINED_MORE_THAN_ONCE) <= set(repeated)


def test_a_package_has_at_most_a_dozen_modules() -> None:
    sizes = {
        str(package.parent.relative_to(SOURCE)): sum(1 for _ in package.parent.glob("*.py")) - 1
        for package in SOURCE.rglob("__init__.py")
    }

    assert {name for name, size in sizes.items() if size > MOST_MODULES} == set(LARGER_PACKAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:core|engine|app|ports|stores|archives)/[^`\s]*)`", read(page))

    assert named
    assert [path for path in named if not any(SOURCE.glob(path))] == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    terms = [term.casefold() for term in re.findall(r"^\| \*\*(.+?)\*\*", read(PAGES[0]), re.MULTILINE)]

    assert terms == sorted(terms)
