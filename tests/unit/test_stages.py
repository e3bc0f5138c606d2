"""How a stage is known again."""

import pytest

from holdfast.core.errors import StageMismatch
from holdfast.core.stages import StageKey, StageRow, StageStatus, ensure_same


@pytest.mark.parametrize(
    ("key", "written"),
    [
        (StageKey("fetch", "#1"), "fetch"),
        (StageKey("fetch", "#2"), "fetch[#2]"),
        (StageKey("fetch", "Ada"), "fetch[Ada]"),
    ],
)
def test_a_stage_is_written_by_its_name_and_by_its_call_unless_that_is_the_first(
    key: StageKey, written: str
) -> None:
    assert str(key) == written


def a_row(fingerprint: str) -> StageRow:
    return StageRow("j1", StageKey("fetch", "#2"), StageStatus.DONE, 1, fingerprint, result="1")


def test_a_call_with_the_stored_arguments_is_answered_from_the_row() -> None:
    ensure_same(a_row("abc"), "abc")


def test_a_call_with_other_arguments_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(
        StageMismatch,
        match=r"stage fetch\[#2\].*; give the changed stage another name .*, then retry the job, or replay it with restart$",
    ):
        ensure_same(a_row("abc"), "abd")
