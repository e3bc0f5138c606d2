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
PAGES = [DOCS / "explanation/glossary.md", DOCS / "explanation/how-it-works.md"]

RETIRED = {
    "archivist",
    "bustle",
    "clerk",
    "clerks",
    "deaf",
    "deafen",
    "desk",
    "desks",
    "everybody",
    "figure",
    "figures",
    "gate",
    "gates",
    "hurried",
    "hurry",
    "inlining",
    "insist",
    "journal",
    "lap",
    "laps",
    "mend",
    "mended",
    "news",
    "somebody",
    "stranger",
    "strangers",
    "suspects",
    "suspicion",
    "sweeper",
    "teller",
    "tellers",
    "telling",
    "ticker",
    "tools",
    "unwinding",
    "whoever",
    "wording",
}

SPOKEN = (
    "face",
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

DEFINED_MORE_THAN_ONCE = {"Migration": "Django looks for a class of this name in each migration"}

MOST_MODULES = 12
LARGER_PACKAGES = {
    "stores/sqlite": "one module for each part of the Store port, and the threads, forks and times that a server would handle"
}


def words_of(identifier: str) -> set[str]:
    """Split *identifier* at underscores and capitals: `_HTTPServer_port` has the words http, server and port."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


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
    named = re.findall(r"`((?:core|engine|face|ports|stores|archives)/[^`\s]*)`", read(page))

    assert named
    assert [path for path in named if not any(SOURCE.glob(path))] == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    terms = [term.casefold() for term in re.findall(r"^\| \*\*(.+?)\*\*", read(PAGES[0]), re.MULTILINE)]

    assert terms == sorted(terms)
