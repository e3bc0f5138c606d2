"""The model shows what its page states, and the page states no more and no less."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from model.__main__ import check_all, report, summary
from model.checker import MODEL, CheckerFailedError, Outcome, check, get_ready, read, source_of
from model.variants import (
    ALWAYS,
    LIMITS,
    MISTAKES,
    OVERLAPS,
    PROMISED,
    SECTIONS,
    VARIANTS,
    Promise,
    Variant,
    Verdict,
)
from tests.pages import DOCS, blocks, prose, table
from tests.servers import in_ci
from tools.debian import NotInstalledError

PAGE = DOCS / "explanation" / "a-model-of-leases-and-effects.md"

WORLD = {"WORKERS", "BUDGET", "FAULTS", "REPLAYS"}
SET_BY_THE_CHECKER = {"CHECK", "LIVENESS"}

Outcomes = dict[Variant, Outcome]


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """What SPIN finds in every variant; it is run once."""
    try:
        get_ready()
    except NotInstalledError as missing:
        if in_ci():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    return {outcome.variant: outcome for outcome in check_all()}


@pytest.mark.parametrize("variant", PROMISED, ids=lambda variant: variant.name)
def test_what_is_promised_holds_in_every_state(outcomes: Outcomes, variant: Variant) -> None:
    assert outcomes[variant].verdict is Verdict.HOLDS, outcomes[variant].story


@pytest.mark.parametrize("variant", LIMITS, ids=lambda variant: variant.name)
def test_more_than_that_cannot_be_promised(outcomes: Outcomes, variant: Variant) -> None:
    assert outcomes[variant].verdict is Verdict.BROKEN
    assert outcomes[variant].story


@pytest.mark.parametrize("variant", OVERLAPS, ids=lambda variant: variant.name)
def test_any_one_lock_may_be_missing_but_not_any_two(outcomes: Outcomes, variant: Variant) -> None:
    assert outcomes[variant].as_expected, outcomes[variant].story


@pytest.mark.parametrize("variant", MISTAKES, ids=lambda variant: variant.name)
def test_a_mistake_in_the_design_is_found(outcomes: Outcomes, variant: Variant) -> None:
    assert outcomes[variant].verdict is Verdict.BROKEN


@pytest.mark.parametrize("variant", MISTAKES, ids=lambda variant: variant.name)
def test_a_mistake_breaks_what_holds_without_it(variant: Variant) -> None:
    [promise] = variant.promises

    assert any(promise in promised.promises for promised in PROMISED)


def test_exactly_once_is_broken_in_both_orders_by_a_repetition_and_by_a_gap(outcomes: Outcomes) -> None:
    called, recorded = (
        outcomes[variant].story for variant in LIMITS if variant.promises == (Promise.EXACTLY_ONCE,)
    )

    assert sum("provider: acts" in step for step in called) == 2
    assert sum("provider: acts" in step for step in recorded) == 0


def test_every_switch_of_the_model_is_used_by_a_variant() -> None:
    switches = set(re.findall(r"(?:ifdef |ifndef |defined\()(\w+)", MODEL.read_text()))

    used = {definition.split()[0] for variant in VARIANTS for definition in variant.world}

    assert switches - used <= WORLD | SET_BY_THE_CHECKER
    assert used <= switches


def test_every_promise_has_its_number_in_the_model() -> None:
    numbers = dict(re.findall(r"^#define (\w+) +(\d+)$", MODEL.read_text(), re.MULTILINE))

    named = [numbers[promise.name] for promise in Promise if promise is not Promise.ENDS]

    assert len(set(named)) == len(named)


def test_a_variant_with_nothing_to_check_asks_for_nothing() -> None:
    endless = next(variant for variant in VARIANTS if variant.is_about_endless_runs)

    assert "#define CHECK (0)\n#define LIVENESS\n" in source_of(endless)


def test_a_verdict_that_was_not_expected_is_said_loudly(outcomes: Outcomes) -> None:
    found = [
        replace(outcome, verdict=Verdict.HOLDS) if outcome.variant is MISTAKES[0] else outcome
        for outcome in outcomes.values()
    ]

    assert summary(list(outcomes.values()))["unexpected"] == []
    assert summary(found)["unexpected"] == [MISTAKES[0].name]
    assert [line for line in report(found) if "NOT EXPECTED" in line]


@pytest.mark.parametrize(
    "said",
    [
        "pan: out of memory",
        "error: max search depth too small\nState-vector 8 byte, depth reached 9, errors: 0\n 5 states, stored",
        "Warning: Search not completed\nState-vector 8 byte, depth reached 9, errors: 0\n 5 states, stored",
        "pan:1: invalid end state\nState-vector 8 byte, depth reached 9, errors: 1\n 5 states, stored",
    ],
)
def test_a_search_that_broke_off_is_no_verdict(said: str) -> None:
    with pytest.raises(CheckerFailedError):
        read(said, endless=False)


@pytest.mark.usefixtures("outcomes")
def test_a_model_that_does_not_compile_is_no_verdict() -> None:
    with pytest.raises(CheckerFailedError, match="spin ended with"):
        check(replace(VARIANTS[0], world=("processing }",)))


@pytest.mark.parametrize("part", SECTIONS)
def test_the_page_lists_what_was_found(outcomes: Outcomes, part: str) -> None:
    found = [
        [variant.name, promises_of(variant), str(outcomes[variant].verdict)] for variant in SECTIONS[part]
    ]

    assert table(PAGE, part) == found


def promises_of(variant: Variant) -> str:
    """Return the promises of *variant* as the page words them: the four that are always made by one name."""
    words = "<br>".join(promise.value for promise in variant.promises)
    return words.replace("<br>".join(promise.value for promise in ALWAYS), "what is always promised")


def test_the_page_names_what_is_always_promised() -> None:
    named = "\n".join(f"- {promise.value}" for promise in ALWAYS)

    assert f"\n\n{named}\n\n" in prose(PAGE)


def test_the_stories_on_the_page_are_those_that_were_found(outcomes: Outcomes) -> None:
    shown = {block.title: block.text.splitlines() for block in blocks(PAGE) if block.title}

    stories = {variant.name: list(outcome.story) for variant, outcome in outcomes.items()}

    assert len(shown) >= 4
    assert shown == {title: stories[title] for title in shown if title in stories}
