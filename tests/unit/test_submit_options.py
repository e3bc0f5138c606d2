"""Options that no store could keep are refused before anything is stored."""

from typing import Any

import pytest

from holdfast import Holdfast, JobFunction, PayloadInvalid


@pytest.fixture
def greet() -> JobFunction[[str], str]:
    @Holdfast("sqlite:///never-opened.db").job("greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    return greet


@pytest.mark.parametrize("version", ["1", 1.5, True, 2**63, -(2**63) - 1])
def test_a_version_is_a_whole_number_that_every_store_can_hold(
    greet: JobFunction[[str], str], version: Any
) -> None:
    with pytest.raises(PayloadInvalid, match="version must be"):
        greet.options(subject="c1", version=version)


@pytest.mark.parametrize("priority", ["1", 1.5, True, 32_768, -32_769])
def test_a_priority_is_a_whole_number_in_its_range(greet: JobFunction[[str], str], priority: Any) -> None:
    with pytest.raises(PayloadInvalid, match="priority must be"):
        greet.options(priority=priority)


def test_the_edges_of_both_ranges_are_accepted(greet: JobFunction[[str], str]) -> None:
    for version, priority in ((2**63 - 1, 32_767), (-(2**63), -32_768)):
        greet.options(subject="c1", version=version, priority=priority)
