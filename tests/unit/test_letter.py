"""The repair of a failed job: which step follows which, who may take it, and what goes on record."""

import json
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.dead_letters.letter import (
    GRAPH,
    NEXT,
    Cause,
    LetterFilter,
    LetterState,
    Step,
    by_hand,
    close,
    discard,
    letter_id,
    mermaid,
    refusal,
    remediate,
    triage,
    validate,
)
from holdfast.core.errors import LetterNotFound, StateRefused, StepRefused
from holdfast.core.failures.failure import ErrorClass
from tests.unit.dead_letters import JOB_ID, a_letter

STEPS = {
    ("new", "triaged"),
    ("triaged", "triaged"),
    ("triaged", "remediated"),
    ("remediated", "triaged"),
    ("remediated", "remediated"),
    ("remediated", "validated"),
    ("validated", "triaged"),
    ("validated", "remediated"),
    ("validated", "validated"),
    ("validated", "replaying"),
    ("replaying", "verified"),
    ("replaying", "new"),  # its job failed again
    ("replaying", "discarded"),  # its job was cancelled
    ("verified", "closed"),
    ("closed", "new"),  # its owner retried the job, and it failed again
    ("discarded", "new"),
    *((state, "discarded") for state in ("new", "triaged", "remediated", "validated")),
    # Its owner retried the job.
    *((state, "closed") for state in ("new", "triaged", "remediated", "validated", "discarded")),
}
BY_HAND = {
    "new": {"triaged", "discarded"},
    "triaged": {"triaged", "remediated", "discarded"},
    "remediated": {"triaged", "remediated", "validated", "discarded"},
    "validated": {"triaged", "remediated", "validated", "discarded"},
    "replaying": set(),
    "verified": {"closed"},
    "closed": set(),
    "discarded": set(),
}


def reached_without(left_out: LetterState) -> set[LetterState]:
    """Name the states to which a new letter can come if it never is in the one that is left out."""
    reached, ahead = set[LetterState](), [LetterState.NEW]
    while ahead:
        state = ahead.pop()
        if state not in reached:
            reached.add(state)
            ahead += GRAPH[state] - {left_out}
    return reached


@pytest.mark.parametrize("source", LetterState)
@pytest.mark.parametrize("target", LetterState)
def test_a_letter_takes_the_agreed_steps_and_no_other(source: LetterState, target: LetterState) -> None:
    assert (target in GRAPH[source]) == ((source.value, target.value) in STEPS)


@pytest.mark.clause("OPS-1")
def test_only_a_validated_letter_is_replayed_and_only_a_remediated_one_validated() -> None:
    def leading_to(target: LetterState) -> set[LetterState]:
        return {source for source, targets in GRAPH.items() if target in targets}

    assert leading_to(LetterState.REPLAYING) == {LetterState.VALIDATED}
    assert leading_to(LetterState.VALIDATED) == {LetterState.REMEDIATED, LetterState.VALIDATED}


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize("left_out", [LetterState.TRIAGED, LetterState.REMEDIATED, LetterState.VALIDATED])
def test_no_path_leads_from_new_to_a_replay_past_cause_evidence_and_safety(left_out: LetterState) -> None:
    assert LetterState.REPLAYING not in reached_without(left_out)


@pytest.mark.parametrize("state", LetterState)
def test_a_letter_can_come_to_every_state(state: LetterState) -> None:
    assert state in set().union(*(reached_without(other) for other in LetterState))


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize("state", [state for state in LetterState if state is not LetterState.VERIFIED])
def test_no_operator_closes_what_is_not_verified(state: LetterState) -> None:
    assert LetterState.CLOSED not in by_hand(state)


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize("state", LetterState)
def test_a_person_is_offered_the_agreed_steps_and_none_that_only_a_job_decides(state: LetterState) -> None:
    assert by_hand(state) == BY_HAND[state.value]
    assert by_hand(state) <= GRAPH[state]
    assert not by_hand(state) & {LetterState.NEW, LetterState.REPLAYING, LetterState.VERIFIED}


@pytest.mark.parametrize("state", LetterState)
def test_every_state_has_next_states_and_words_for_what_comes_next(state: LetterState) -> None:
    assert GRAPH[state]
    assert NEXT[state]


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize("state", LetterState)
@pytest.mark.parametrize("target", LetterState)
def test_a_step_is_taken_or_refused_with_what_comes_next(state: LetterState, target: LetterState) -> None:
    letter, step = a_letter(state), Step(target, "eve")

    why = refusal(letter, step)

    if target.value in BY_HAND[state.value]:
        assert why is None
    else:
        assert why == f"the dead letter of job {JOB_ID} is {state}, so it cannot be {target}; {NEXT[state]}"


@pytest.mark.clause("OPS-1")
def test_the_four_causes_are_those_that_were_agreed() -> None:
    assert [str(cause) for cause in Cause] == ["transient", "data", "configuration", "code"]


@pytest.mark.clause("OPS-1")
def test_each_step_says_who_took_it_and_what_goes_on_record() -> None:
    steps = [
        triage(Cause.DATA, actor="eve", reason="seen in the log"),
        remediate("the file is whole again", actor="eve", reason="uploaded again"),
        validate("grading twice does no harm", "token", actor="eve"),
        close("the upload was cut off", actor="eve"),
        discard("it is not needed any more", actor="eve"),
    ]

    assert {step.actor for step in steps} == {"eve"}
    assert [(str(step.to), step.reason, step.recorded()) for step in steps] == [
        ("triaged", "seen in the log", {"cause": "data"}),
        ("remediated", "uploaded again", {"evidence": "the file is whole again"}),
        ("validated", "", {"safe": "grading twice does no harm", "plan": "token"}),
        ("closed", "", {"notes": "the upload was cut off"}),
        ("discarded", "it is not needed any more", {}),
    ]


def test_what_goes_on_record_can_be_stored_with_whatever_else_belongs_to_the_step() -> None:
    step = Step(LetterState.TRIAGED, "eve", cause=Cause.CODE, meta={"version": "1.4"})

    assert json.loads(json.dumps(step.recorded())) == {"cause": "code", "version": "1.4"}


BLANK = st.text(alphabet=" \t\n", max_size=5)


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize(
    ("take", "what"),
    [
        (lambda text: remediate(text, actor="eve"), "evidence"),
        (lambda text: validate(text, "token", actor="eve"), "safe"),
        (lambda text: close(text, actor="eve"), "notes"),
        (lambda text: discard(text, actor="eve"), "reason"),
    ],
    ids=["evidence", "safe", "notes", "reason"],
)
@given(blank=BLANK)
def test_a_step_that_has_to_be_explained_is_refused_without_words(
    take: Callable[[str], Step], what: str, blank: str
) -> None:
    with pytest.raises(StepRefused, match=f"{what} must not be empty"):
        take(blank)


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize(
    "take",
    [
        lambda actor: triage(Cause.DATA, actor=actor),
        lambda actor: remediate("it is whole", actor=actor),
        lambda actor: validate("it does no harm", "token", actor=actor),
        lambda actor: close("it was cut off", actor=actor),
        lambda actor: discard("it is not needed", actor=actor),
    ],
    ids=["triage", "remediate", "validate", "close", "discard"],
)
@given(blank=BLANK)
def test_a_step_without_an_actor_is_refused(take: Callable[[str], Step], blank: str) -> None:
    with pytest.raises(StepRefused, match="actor= must not be empty") as refused:
        take(blank)

    assert isinstance(refused.value, StateRefused)


def test_of_an_id_that_can_be_nobodys_there_is_no_letter() -> None:
    with pytest.raises(
        LetterNotFound, match="there is no dead letter of job 'yesterday'; a job's id is a UUID"
    ):
        letter_id("yesterday")


def test_a_letter_shows_its_group_its_place_and_where_its_arguments_are() -> None:
    letter = a_letter(error_class=ErrorClass.BUG)

    assert letter.error_class is ErrorClass.BUG
    assert letter.fingerprint == "0123456789abcdef"
    assert letter.payload_ref == JOB_ID
    assert letter.seen == (JOB_ID, letter.version)
    assert letter.last_stack == "Traceback: no luck"


def test_the_context_of_a_letter_says_where_how_often_and_how_it_failed() -> None:
    letter = a_letter(stage="llm", replays=1, context={"request_id": "r-1"})

    assert letter.sanitized_context == {
        "request_id": "r-1",
        "stage": "llm",
        "attempt": 3,
        "holds": 2,
        "replays": 1,
        "upstream_status": 503,
        "sent": "maybe",
        "code": "GW_5XX",
    }


def test_nothing_in_the_context_hides_what_the_letter_itself_knows() -> None:
    letter = a_letter(stage="llm", context={"stage": "notify", "attempt": 99})

    assert (letter.sanitized_context["stage"], letter.sanitized_context["attempt"]) == ("llm", 3)


def test_a_list_shows_fifty_letters_unless_another_number_is_requested() -> None:
    assert (LetterFilter().listed, LetterFilter(limit=7).listed) == (50, 7)


def test_states_are_accepted_by_their_names_too() -> None:
    letter_filter = LetterFilter(states=cast("tuple[LetterState, ...]", ["new", LetterState.TRIAGED]))

    assert letter_filter.states == (LetterState.NEW, LetterState.TRIAGED)
    with pytest.raises(ValueError, match="'lost' is not a valid LetterState"):
        LetterFilter(states=cast("tuple[LetterState, ...]", ("lost",)))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_list_of_no_letters_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit={limit} shows nothing; ask for at least one letter"):
        LetterFilter(limit=limit)


def test_a_page_ends_at_the_id_of_a_job() -> None:
    assert LetterFilter().before is None
    assert LetterFilter(before=JOB_ID).before == JOB_ID
    with pytest.raises(ValueError, match="UUID"):
        LetterFilter(before="the last one")


def test_the_drawing_has_every_step_one_beginning_and_two_ends() -> None:
    title, *arrows = mermaid().split("\n")

    assert title == "stateDiagram-v2"
    assert sorted(arrow.strip() for arrow in arrows) == sorted(
        [
            "[*] --> new",
            *(f"{a} --> {b}" for a, b in STEPS),
            "closed --> [*]",
            "discarded --> [*]",
        ]
    )
