"""The code in the guides runs: each page is one program, read from top to bottom."""

import ast
import asyncio
import inspect
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType

import pytest

from holdfast import Holdfast
from tests.pages import DOCS, FLEETS, PROJECTS, Block, blocks, name_of

TIMEOUT = 60
SHOWN_ADDRESS = "postgresql://app@localhost/shop"
ON_POSTGRES = "on postgresql"

GUIDES = sorted((DOCS / "guides").glob("*.md"))


def python_of(page: Path, *, on_postgres: bool) -> list[Block]:
    """Return what is run of *page*, for the one store or for the other."""
    return [
        block
        for block in blocks(page)
        if block.language == "python"
        and not block.remark.startswith("not run: ")
        and (block.remark == ON_POSTGRES) == on_postgres
    ]


def on(*, postgres: bool) -> list[Path]:
    return [page for page in GUIDES if python_of(page, on_postgres=postgres)]


async def run(program: Iterable[Block], names: dict[str, object], *, address: str = SHOWN_ADDRESS) -> None:
    """Run *program* with *names*, as `python -m asyncio` would; hidden code may enter contexts in `page`."""
    try:
        async with asyncio.timeout(TIMEOUT), AsyncExitStack() as page:
            names["page"] = page
            for block in program:
                text = "\n" * (block.line - 1) + block.text.replace(SHOWN_ADDRESS, address)
                flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                code = compile(text, str(block.page), "exec", flags=flags, dont_inherit=True)
                running = eval(code, names)
                if inspect.iscoroutine(running):
                    await running
    finally:
        for value in list(names.values()):
            if isinstance(value, Holdfast):
                await value.close()


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The names of a module that runs in a folder of its own."""
    module = ModuleType("a_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    return module.__dict__


@pytest.mark.parametrize("page", on(postgres=False), ids=name_of)
async def test_the_code_of_a_guide_runs_on_sqlite(page: Path, names: dict[str, object]) -> None:
    await run(python_of(page, on_postgres=False), names)


@pytest.mark.parametrize("page", on(postgres=True), ids=name_of)
async def test_the_code_of_a_guide_runs_on_postgresql(
    page: Path, names: dict[str, object], postgres_dsn: str
) -> None:
    preparing = Holdfast(postgres_dsn)
    await preparing.apply_schema()
    await preparing.close()

    await run(python_of(page, on_postgres=True), names, address=postgres_dsn)


def test_every_guide_but_the_list_of_them_has_code_that_is_run() -> None:
    run = {*on(postgres=False), *on(postgres=True), *PROJECTS, *FLEETS}

    assert set(GUIDES) - run == {DOCS / "guides/index.md"}


def test_code_that_is_not_run_says_why() -> None:
    unknown = [
        f"{name_of(block.page)}:{block.line}: {block.remark}"
        for page in GUIDES
        for block in blocks(page)
        if block.remark not in ("", "run", ON_POSTGRES) and not block.remark.startswith("not run: ")
    ]

    assert unknown == []
