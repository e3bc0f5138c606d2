"""Gives the documentation its navigation: sections in a fixed order, pages as they are found.

A page belongs to the section whose folder (`guides/`) or file name (`tutorial.md`) it has, so adding a page needs no
change here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

HOME = "index.md"

SECTIONS = {
    "tutorial": "Tutorial",
    "guides": "Guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "adr": "ADRs",
}

Nav = list[dict[str, str | list[str]]]


class Page(Protocol):
    """What mkdocs knows about a file, as far as it matters here."""

    @property
    def src_uri(self) -> str: ...


def navigation(pages: Iterable[str]) -> Nav:
    """Return the navigation for *pages*, given by their path. Raises `ValueError` for one without a section.

    >>> navigation(["reference/cli.md", "index.md", "tutorial.md", "reference/index.md"])
    [{'Home': 'index.md'}, {'Tutorial': 'tutorial.md'}, {'Reference': ['reference/index.md', 'reference/cli.md']}]
    """
    members: dict[str, list[str]] = {folder: [] for folder in SECTIONS}
    for page in sorted(pages, key=_index_first):
        if page == HOME:
            continue
        section = page.split("/")[0].removesuffix(".md")
        if section not in members:
            raise ValueError(f"{page} is in no section: put it into one of {', '.join(SECTIONS)}.")
        members[section].append(page)
    found: Nav = [{SECTIONS[folder]: _entry(folder, paths)} for folder, paths in members.items() if paths]
    return [{"Home": HOME}, *found]


def on_files(files: Iterable[Page], config: MutableMapping[str, object]) -> None:
    """Set the navigation, when mkdocs has found the files."""
    config["nav"] = navigation(page.src_uri for page in files if page.src_uri.endswith(".md"))


def _entry(folder: str, paths: list[str]) -> str | list[str]:
    return paths[0] if paths == [f"{folder}.md"] else paths


def _index_first(path: str) -> tuple[str, bool, str]:
    folder, _, name = path.rpartition("/")
    return (folder, name != "index.md", name)
