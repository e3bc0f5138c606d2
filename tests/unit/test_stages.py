"""How a stage is known again."""

import pytest

from holdfast.core.errors import StageMismatch
from holdfast.core.jobs.stages import CallHash, StageKey, StageRow, StageStatus, ensure_same


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


def a_row(fingerprint: str, brief: str = "") -> StageRow:
    key = StageKey("fetch", "#2")
    return StageRow("j1", key, StageStatus.DONE, 1, fingerprint, result="1", brief_fingerprint=brief)


def never() -> list[str]:
    raise AssertionError("earlier forms are looked at only where an earlier version stored the row")


@pytest.mark.parametrize(
    "call",
    [CallHash("all", "brief"), CallHash("all", "other"), CallHash("other", "brief")],
    ids=["both", "the same arguments, another default", "another parameter at its default"],
)
def test_a_call_with_the_stored_arguments_is_answered_from_the_row(call: CallHash) -> None:
    ensure_same(a_row("all", "brief"), call, never)


def test_a_row_of_an_earlier_version_answers_a_call_that_has_got_a_parameter_since() -> None:
    ensure_same(a_row("before"), CallHash("all", "brief"), lambda: ["nearly", "before"])


@pytest.mark.parametrize("row", [a_row("abc"), a_row("abc", "ab")], ids=["an earlier version's", "ours"])
def test_a_call_with_other_arguments_is_refused_and_says_what_to_do(row: StageRow) -> None:
    with pytest.raises(
        StageMismatch,
        match=r"stage fetch\[#2\].*; give the changed stage another name .*, then retry the job, or replay it with restart$",
    ):
        ensure_same(row, CallHash("abd", "bd"), lambda: ["a"])
