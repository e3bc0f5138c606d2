"""The pages as tests read them: blocks of code, the remarks above them, links, tables.

A remark is an HTML comment, which readers do not see. On its own line above a block it says how that block is
tested: `not run: why`, `on postgresql`, `wait for: text`. With further lines, those are code that is
run in the block's place: preparations and checks that would only distract a reader.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PROJECTS = [DOCS / f"guides/{name}.md" for name in ("django", "fastapi", "flask", "starting-a-project")]
"""Guides that build a project: tests run their files and commands as a whole, in a folder of its own."""
FLEETS = [DOCS / "guides/keep-your-celery-workers.md"]
"""Guides that build a project on workers of another library: the tests of these workers run them."""
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

AS_A_PROJECT = "not run: as a project of its own"
"""The remark above a block that is a file of the project that its page builds."""

_PARTS = re.compile(
    r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$|^<!--(?P<remark>.*?)-->$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block, or code in a remark, which then is `hidden` and Python."""

    page: Path
    line: int
    language: str
    title: str | None
    text: str
    remark: str
    hidden: bool = False


def name_of(page: Path) -> str:
    """Name a page in the id of a test."""
    return page.relative_to(ROOT).as_posix()


def read(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of *page* in order, each with the remark right above it."""
    text = read(page)
    remark, ended = "", -1
    for part in _PARTS.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if part["remark"] is not None:
            remark, _, code = part["remark"].strip().partition("\n")
            ended = part.end()
            if code:
                yield Block(page, line + 1, "python", None, code, remark, hidden=True)
                ended = -1
            continue
        above = remark if not text[ended : part.start()].strip() and ended >= 0 else ""
        language, _, rest = part["info"].partition(" ")
        titled = re.search('title="([^"]+)"', rest)
        yield Block(page, line + 1, language, titled[1] if titled else None, part["code"], above)
        ended = -1


def prose(page: Path) -> str:
    """Return *page* without its blocks and remarks."""
    return _PARTS.sub("", read(page))


def links(page: Path) -> list[str]:
    """Return the targets of all links of *page*."""
    return [found["target"] for found in _LINK.finditer(prose(page))]


def anchors(page: Path) -> set[str]:
    """Return the names under which the headings of *page* can be reached."""
    titles = (found["title"] for found in _HEADING.finditer(prose(page)))
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def table(page: Path, heading: str) -> list[list[str]]:
    """Return the rows of the first table of *page* below *heading*, without its head."""
    text = read(page)
    below = text[text.index(f"\n## {heading}\n") :]
    lines = below[below.index("\n|") + 1 :].splitlines()
    rows = list(takewhile(lambda line: line.startswith("|"), lines))
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def words(cell: str) -> list[str]:
    """Return what a cell has in backticks.

    >>> words("`jobs_completed`, `jobs_failed` and more")
    ['jobs_completed', 'jobs_failed']
    """
    return re.findall("`([^`]+)`", cell)
