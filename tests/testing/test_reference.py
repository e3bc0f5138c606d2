"""The reference lists what `holdfast.testing` has, and the guide leaves nothing out."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import testing
from holdfast.testing import Answer, Call, RateLimited, ScriptedProvider, Simulation, simulated, simulation
from tests.pages import DOCS, read

API = DOCS / "reference/api.md"
GUIDE = DOCS / "guides/testing-your-jobs.md"


def code_words(page: Path) -> set[str]:
    """Return every identifier that the page shows as code."""
    text = read(page)
    shown = re.findall("```[^\n]*\n(.*?)```", text, re.DOTALL) + re.findall("`([^`\n]+)`", text)
    return set(re.findall(r"\w+", " ".join(shown)))


@pytest.mark.parametrize("page", [API, GUIDE], ids=lambda page: page.name)
def test_every_name_is_explained(page: Path) -> None:
    assert [name for name in testing.__all__ if name not in code_words(page)] == []


@pytest.mark.parametrize("kind", [Simulation, ScriptedProvider])
def test_every_method_is_in_the_reference(kind: type) -> None:
    names = [name for name in vars(kind) if not name.startswith("_")]

    assert [name for name in names if name not in code_words(API)] == []


@pytest.mark.parametrize("function", [simulation, simulated])
def test_every_option_is_in_the_reference(function: Callable[..., Any]) -> None:
    names = inspect.signature(function).parameters

    assert [name for name in names if name not in code_words(API)] == []


def test_decorator_and_context_manager_of_a_simulation_have_the_same_options() -> None:
    assert inspect.signature(simulation).parameters == inspect.signature(simulated).parameters


@pytest.mark.parametrize("kind", [Answer, Call, RateLimited])
def test_every_field_of_a_value_is_in_the_reference(kind: Any) -> None:
    assert [name for name in kind.__dataclass_fields__ if name not in code_words(API)] == []
