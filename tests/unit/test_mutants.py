"""What is made of the notes that mutmut leaves."""

import json

import pytest

from tools.mutants import CORE, ROOT, Mutant, Outcome, as_json, chosen_tests, mutants_in, percent, table


def a_mutant(module: str, outcome: Outcome) -> Mutant:
    return Mutant(f"holdfast.core.{module}.x_{module}__mutmut_1", outcome)


SEEN = [
    *[a_mutant("hints", "killed")] * 6,
    *[a_mutant("hints", "survived")] * 2,
    *[a_mutant("rules", "killed")] * 11,
    a_mutant("rules", "timeout"),
]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, "survived"),
        (1, "killed"),
        (3, "killed"),
        (33, "no tests"),
        (-24, "timeout"),
        (-9, "other"),
        (None, "other"),
    ],
)
def test_a_mutant_is_killed_only_if_a_test_failed(code: int | None, outcome: Outcome) -> None:
    note = json.dumps({"exit_code_by_key": {"holdfast.core.failures.retry_after.x__until__mutmut_2": code}})

    [mutant] = mutants_in(note)

    assert mutant == Mutant("holdfast.core.failures.retry_after.x__until__mutmut_2", outcome)
    assert (mutant.module, mutant.function) == ("retry_after", "holdfast.core.failures.retry_after.x__until")


def test_a_method_belongs_to_the_module_of_its_class() -> None:
    assert Mutant("holdfast.core.failures.backoff.xǁBackoffǁdelay__mutmut_3", "killed").module == "backoff"


def test_one_that_ran_out_of_time_does_not_count_as_killed() -> None:
    assert percent(SEEN) == 85.0


def test_the_table_has_a_row_for_each_module_and_one_for_all() -> None:
    _, *rows = [" ".join(line.split()) for line in table(SEEN).splitlines()]

    assert rows == [
        "hints 8 6 2 0 0 0 75.0 %",
        "rules 12 11 0 0 1 0 91.7 %",
        "all 20 17 2 0 1 0 85.0 %",
    ]


def test_the_last_line_is_for_programs() -> None:
    assert json.loads(as_json(SEEN)) == {
        "mutants": 20,
        "killed": 17,
        "survived": 2,
        "no_tests": 0,
        "timeout": 1,
        "other": 0,
        "percent": 85.0,
    }


def test_every_module_of_the_core_has_tests_of_its_name() -> None:
    modules = {module.stem for module in (ROOT / CORE).rglob("*.py")} - {"__init__"}

    assert chosen_tests() == [f"tests/unit/test_{module}.py" for module in sorted(modules)]
