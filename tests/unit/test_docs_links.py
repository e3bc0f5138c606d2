"""Links between the pages lead somewhere, for those who read them in the repository."""

from pathlib import Path

import pytest

from tests.pages import DOCS, PAGES, ROOT, anchors, links, name_of, read


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_page_and_a_heading_that_exist(page: Path) -> None:
    assert [target for target in links(page) if not _leads_somewhere(page, target)] == []


def _leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    if path.startswith(("https://", "http://", "mailto:")):
        return True
    found = (page.parent / path).resolve() if path else page
    return found.is_file() and (not anchor or anchor in anchors(found))


def test_every_page_can_be_reached_from_the_start_pages() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md", DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md" and page.is_file():
            reached.add(page)
            waiting += [(page.parent / target.partition("#")[0]).resolve() for target in links(page)]

    assert [name_of(page) for page in DOCS.rglob("*.md") if page not in reached] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_says_nothing_about_the_machine_it_was_written_on(page: Path) -> None:
    text = read(page)

    assert [word for word in (f"{Path.home()}/", f"{ROOT.parent}/", "/tmp/") if word in text] == []


@pytest.mark.parametrize("page", sorted((DOCS / "adr").glob("[0-9]*.md")), ids=name_of)
def test_a_record_has_context_decision_and_consequences(page: Path) -> None:
    headings = [line for line in read(page).splitlines() if line.startswith("#")]

    assert headings[0].startswith(f"# {page.name[:4]}: ")
    assert headings[1:] == ["## Context", "## Decision", "## Consequences"]
