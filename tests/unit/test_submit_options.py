"""Options that no store could keep are refused before anything is stored."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Holdfast, JobFunction
from holdfast.errors import PayloadInvalid


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


def test_options_add_up(greet: JobFunction[[str], str]) -> None:
    of_ada = greet.options(owner="ada", priority=3)

    both = of_ada.options(key="k1", priority=5)

    submission = both._submission(both.spec.signature.dump_args(("you",), {}))
    assert (submission.owner, submission.key, submission.priority) == ("ada", "k1", 5)


def test_options_that_contradict_earlier_ones_are_refused(greet: JobFunction[[str], str]) -> None:
    with pytest.raises(PayloadInvalid, match="exclude each other"):
        greet.options(delay=5).options(run_at=datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(PayloadInvalid, match="deadline and deadline_at exclude each other"):
        greet.options(deadline=5).options(deadline_at=datetime(2030, 1, 1, tzinfo=UTC))


def test_a_deadline_at_an_instant_replaces_the_declared_length() -> None:
    @Holdfast("sqlite:///never-opened.db").job("grade", deadline="20m")
    async def grade() -> None: ...

    by_new_year = grade.options(deadline_at=datetime(2030, 1, 1, tzinfo=UTC))

    submission = by_new_year._submission("{}")
    assert (submission.deadline, submission.deadline_at) == (None, datetime(2030, 1, 1, tzinfo=UTC))


def test_a_deadline_without_a_time_zone_is_refused(greet: JobFunction[[str], str]) -> None:
    with pytest.raises(PayloadInvalid, match="deadline_at must have a time zone"):
        greet.options(deadline_at=datetime(2030, 1, 1))


@pytest.mark.parametrize("key", ["", "#1", "a\x00b"])
def test_a_stage_key_is_text_that_no_counted_call_has(key: str) -> None:
    @Holdfast("sqlite:///never-opened.db").stage()
    async def fetch() -> None: ...

    with pytest.raises(PayloadInvalid, match="a stage's key must be"):
        fetch.options(key=key)


def test_an_empty_key_is_refused() -> None:
    hold = Holdfast("sqlite:///unused.db")

    @hold.job("send")
    async def send() -> None:
        return None

    with pytest.raises(PayloadInvalid, match="key must be printable text of 1 to 200 characters"):
        send.options(key="")
