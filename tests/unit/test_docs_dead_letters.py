"""What the pages say of dead letters is what the code has."""

import dataclasses
import inspect
import re
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import operations, types
from holdfast.config import Settings
from holdfast.core.dead_letters.letter import GRAPH, NEXT, LetterState, by_hand, mermaid
from holdfast.core.dead_letters.ticket import TicketKind
from holdfast.core.failures.escalation import DEFAULT_TABLE, LEVELS
from holdfast.core.secret_patterns import library_patterns
from tests.pages import DOCS, read, table, words

API = DOCS / "reference/api.md"
EVENTS = DOCS / "reference/events-and-states.md"
KEEPING = DOCS / "guides/dead-letters-and-retention.md"
REPAIR = DOCS / "guides/repair-a-failed-job.md"
RETRIES = DOCS / "guides/retries-and-failures.md"
STATES = DOCS / "explanation/states.md"

PUBLIC = [
    operations.DeadLetterService,
    holdfast.Redactor,
]
VALUES = [
    operations.Letter,
    operations.LetterFilter,
    operations.LetterStep,
    operations.Group,
    holdfast.Retention,
    holdfast.AutoReplay,
    types.Pattern,
    operations.Ticket,
]


def names_in(page: Any) -> set[str]:
    shown = re.findall("```[^\n]*\n(.*?)```", read(page), re.DOTALL) + re.findall("`([^`\n]+)`", read(page))
    return set(re.findall(r"\w+", " ".join(shown)))


def test_the_drawing_of_the_states_of_a_letter_is_the_graph() -> None:
    assert f"```mermaid\n{mermaid()}\n```" in read(STATES)


@pytest.mark.parametrize(
    "page", [(EVENTS, "States of a dead letter"), (STATES, "Dead letters"), (REPAIR, "The way back")]
)
def test_every_state_of_a_letter_is_explained_in_order(page: Any) -> None:
    assert [words(row[0])[0] for row in table(*page)] == list(LetterState)


def test_the_reference_names_every_state_that_follows_another() -> None:
    rows = table(EVENTS, "States of a dead letter")

    assert {words(row[0])[0]: set(words(row[2])) for row in rows} == {
        state.value: {target.value for target in targets} for state, targets in GRAPH.items()
    }


def test_the_guide_gives_people_the_steps_that_they_can_take() -> None:
    by_people = {words(row[0])[0] for row in table(REPAIR, "The way back") if row[2].startswith("you: ")}
    # A replay is begun by a person, and sent by a worker.
    assert by_people == {target for state in LetterState for target in by_hand(state)} | {
        LetterState.REPLAYING
    }
    assert set(NEXT) == set(LetterState)


def test_the_table_of_what_follows_exhaustion_is_the_one_in_the_code() -> None:
    rows = table(RETRIES, "When nothing helps")
    named = {kind: tuple(words(row[1])) for row in rows for kind in words(row[0])}
    [others] = [tuple(words(row[1])) for row in rows if row[0] == "all others"]

    assert {kind.value: named.get(kind.value, others) for kind in DEFAULT_TABLE} == {
        kind.value: tuple(word.value for word in words) for kind, words in DEFAULT_TABLE.items()
    }
    assert set(named) <= {kind.value for kind in DEFAULT_TABLE}


def test_every_level_and_every_kind_of_ticket_is_explained() -> None:
    text = read(KEEPING)
    levels = [words(row[0])[0] for row in table(KEEPING, "Decide who is notified")]
    kinds = re.findall(r"^\| `([^`]+)` \| [^|]+ \| [^|]+ \|$", text[text.index("| Ticket |") :], re.MULTILINE)

    assert levels == list(LEVELS)
    assert kinds[: len(TicketKind)] == list(TicketKind)


def test_what_is_kept_how_long_is_documented_with_its_setting() -> None:
    documented = {
        words(row[2])[0].removeprefix("HOLDFAST_").lower(): row[1]
        for row in table(KEEPING, "Where letters go")
    }
    lengths = {"dead_letter_days", "finished_days", "key_days"}

    assert documented == {
        name: f"{Settings.model_fields[name].default} days"
        if name in lengths
        else f"{Settings.model_fields[name].default:,}"
        for name in (*lengths, "dead_letter_limit")
    }
    assert f"more than {Settings.model_fields['dead_letter_alert'].default} jobs" in read(KEEPING)


def test_every_tag_of_the_redactor_is_explained() -> None:
    documented = {tag for row in table(KEEPING, "What is redacted") for tag in words(row[1])}

    assert documented == {pattern.kind for pattern in library_patterns()}


@pytest.mark.parametrize("kind", PUBLIC)
def test_every_verb_and_parameter_is_in_the_reference(kind: type) -> None:
    verbs = [(name, verb) for name, verb in inspect.getmembers(kind, callable) if not name.startswith("_")]
    names = {name for name, _ in verbs} | {
        parameter for _, verb in verbs for parameter in inspect.signature(verb).parameters
    }

    assert (
        names - {"self", "args", "kwargs"} - names_in(API) - set(re.findall(r"\*(\w+)\*", read(API))) == set()
    )


@pytest.mark.parametrize("kind", VALUES)
def test_every_field_of_a_letters_values_is_in_the_reference(kind: Any) -> None:
    fields = (
        [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
    )

    assert [name for name in fields if name not in names_in(API)] == []


@pytest.mark.parametrize(
    "kind", [holdfast.Retention, holdfast.AutoReplay, operations.LetterFilter, holdfast.Redactor]
)
def test_the_reference_shows_the_defaults_of_a_value(kind: type) -> None:
    [call] = re.findall(rf"^{kind.__name__}\((.*?)\)$", read(API), re.MULTILINE | re.DOTALL)
    given = re.findall(r"(?<!\()\b(\w+)=(timedelta\([^)]*\)|\(\)|[^,\s]+)", call)
    parameters = inspect.signature(kind).parameters.values()

    assert {name: eval(value, {"timedelta": timedelta}) for name, value in given} == {
        one.name: one.default for one in parameters if one.default is not one.empty
    }
