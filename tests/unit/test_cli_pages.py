"""Every command, option and setting is in the pages, and every command explains itself in one sentence."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from holdfast.cli import app
from holdfast.cli.doctor import checks
from holdfast.config import Settings, variables_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = Path(__file__).parents[2] / "docs/reference"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Give every command that does something, by its full name."""
    for inner, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {inner}")
    if not hasattr(command, "commands"):
        yield name, command


COMMANDS = dict(commands(get_command(app), "holdfast"))


def sections() -> dict[str, str]:
    """Split the page by its headings."""
    parts = re.split(r"^## (.*)$", (PAGES / "cli.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_has_the_commands_that_there_are() -> None:
    described = {title for title in sections() if title.startswith("holdfast ")}

    assert described == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_on_the_page(name: str) -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", sections()[name].partition("| Option |")[2], flags=re.MULTILINE)
    parameters = [param for param in COMMANDS[name].params if param.name != "help"]

    expected = {
        next((word for word in param.opts if word.startswith("--")), param.metavar) for param in parameters
    }

    assert {row.split()[0] for row in rows} == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_one_sentence_of_help(name: str) -> None:
    sentence = COMMANDS[name].help

    assert sentence.endswith(".")
    assert sentence.count(". ") == 0
    assert "\n" not in sentence
    assert f"$ {name}" in sections()[name]
    assert sentence in (PAGES / "cli.md").read_text(encoding="utf-8").partition("## What all")[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_explains_itself(name: str) -> None:
    unexplained = [param.name for param in COMMANDS[name].params if not getattr(param, "help", None)]

    assert unexplained == []


@pytest.mark.clause("CFG-1")
def test_every_setting_is_on_the_page_with_its_name_and_default() -> None:
    page = (PAGES / "settings.md").read_text(encoding="utf-8")

    expected = [
        f"| `{name}` | {', '.join(f'`{variable}`' for variable in variables_of(name))} | `{field.default}` | "
        for name, field in Settings.model_fields.items()
    ]

    assert [row for row in expected if row not in page] == []
    assert page.count("\n| `") == len(expected)


def test_every_check_of_the_doctor_is_on_the_page() -> None:
    text = inspect.getsource(checks)
    names = set(re.findall(r'(?:_ok|_warn|Check|_durable)\(\s*(?:facts,\s*)?"(\w+)"', text)) | {"database"}

    assert {name for name in names if f"`{name}`" not in sections()["holdfast doctor"]} == set()
