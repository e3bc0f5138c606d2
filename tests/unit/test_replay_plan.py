"""How a plan of replays begins, moves and ends, and what its dry run looks at."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.dead_letters.letter import Cause, Letter, LetterState
from holdfast.core.dead_letters.replay_plan import (
    GOOD_FOR,
    NOT_LATER,
    PACE,
    AutoReplay,
    Facts,
    Phase,
    Plan,
    PlanAdvance,
    PlanCounts,
    PreflightCheck,
    checks,
    is_due,
    is_in_time,
    next_advance,
    start,
    stop,
)
from holdfast.core.durations import Duration
from holdfast.core.errors import PlanStale, StepRefused
from holdfast.core.failures.failure import ErrorClass
from tests.unit.dead_letters import LAST, a_letter

NEW, TRIAGED, REMEDIATED = LetterState.NEW, LetterState.TRIAGED, LetterState.REMEDIATED
VALIDATED, REPLAYING, VERIFIED = LetterState.VALIDATED, LetterState.REPLAYING, LetterState.VERIFIED
DISCARDED = LetterState.DISCARDED

MADE_AT = 1000.0
INSTANTS = st.floats(0, 4e9)
PLANS = st.builds(
    Plan,
    token=st.text(),
    actor=st.text(),
    made_at=INSTANTS,
    letters=st.integers(0),
    restart=st.booleans(),
    same_deadline=st.booleans(),
    code_version=st.text(),
    canary=st.integers(0),
    pace=st.floats(0.001, 1e6),
    phase=st.sampled_from(Phase),
    next_at=INSTANTS,
    why=st.text(),
)
STANDINGS = st.builds(
    PlanCounts, st.dictionaries(st.sampled_from(LetterState), st.integers(0, 20)), repeated=st.integers(0, 3)
)


def a_plan(letters: int = 10, *, canary: int = 1, pace: float = PACE, version: str = "1.4") -> Plan:
    return Plan("p-1", "eve", MADE_AT, letters, code_version=version, canary=canary, pace=pace)


def counts(*, repeated: int = 0, **states: int) -> PlanCounts:
    return PlanCounts({LetterState(state): count for state, count in states.items()}, repeated)


def begun(plan: Plan) -> Plan:
    return start(plan, counts(validated=plan.letters), MADE_AT, actor="ann", code_version=plan.code_version)


def sent(plan: Plan) -> Plan:
    """Return a plan whose canary has gone."""
    return replace(begun(plan), sent=plan.canary)


def paced(plan: Plan) -> Plan:
    return replace(plan, phase=Phase.PACED, next_at=MADE_AT)


# How it is kept.


@given(PLANS)
def test_a_stored_plan_comes_back_as_it_was(plan: Plan) -> None:
    assert Plan.load(plan.dump()) == plan


@given(PLANS, st.dictionaries(st.text().filter(lambda name: name not in Plan.__slots__), st.integers()))
def test_what_a_newer_version_wrote_into_a_plan_is_passed_over(plan: Plan, more: dict[str, int]) -> None:
    assert Plan.load(json.dumps({**json.loads(plan.dump()), **more})) == plan


def test_what_an_older_version_did_not_write_has_its_default() -> None:
    plan = Plan.load('{"token": "p-1", "actor": "eve", "made_at": 1000.0, "letters": 3, "phase": "made"}')

    assert plan == Plan("p-1", "eve", MADE_AT, 3)
    assert (plan.canary, plan.pace, plan.restart, plan.same_deadline) == (1, 10.0, False, False)


@pytest.mark.parametrize("pace", [0.0, -1.0, math.inf, math.nan])
def test_a_plan_that_would_never_move_is_refused(pace: float) -> None:
    with pytest.raises(ValueError, match="must be finite and above 0: it counts letters per second"):
        a_plan(pace=pace)


def test_a_canary_of_less_than_none_is_refused() -> None:
    with pytest.raises(ValueError, match="canary=-1 must be 0 or more; with 0, there is no canary"):
        a_plan(canary=-1)


# How it begins.


@pytest.mark.clause("OPS-2")
@pytest.mark.parametrize(
    ("letters", "canary", "phase"),
    [
        (10, 1, Phase.CANARY),
        (10, 9, Phase.CANARY),
        (10, 10, Phase.PACED),  # no letter would follow
        (10, 11, Phase.PACED),
        (1, 1, Phase.PACED),
        (10, 0, Phase.PACED),
        (0, 1, Phase.PACED),
    ],
)
def test_a_plan_begins_with_a_canary_if_others_can_follow_it(letters: int, canary: int, phase: Phase) -> None:
    plan = a_plan(letters, canary=canary)

    running = start(plan, counts(validated=letters), MADE_AT + 5, actor="ann", code_version="1.4")

    assert running == replace(plan, actor="ann", phase=phase, next_at=MADE_AT + 5)
    assert running.is_running


@given(PLANS.filter(lambda plan: plan.is_running), STANDINGS, INSTANTS, st.text())
def test_said_again_while_it_runs_a_start_changes_nothing(
    plan: Plan, stands: PlanCounts, now: float, version: str
) -> None:
    assert start(plan, stands, now, actor="ann", code_version=version) == plan


def test_a_plan_is_good_for_an_hour() -> None:
    plan, as_planned = a_plan(), counts(validated=10)

    assert start(plan, as_planned, MADE_AT + GOOD_FOR, actor="ann", code_version="1.4").is_running
    with pytest.raises(PlanStale, match="plan p-1 was made more than an hour ago; plan again"):
        start(plan, as_planned, MADE_AT + GOOD_FOR + 0.001, actor="ann", code_version="1.4")


@pytest.mark.parametrize(
    ("planned", "now", "reason"),
    [
        ("1.4", "1.5", "made with version 1.4 of the code, and this is 1.5; plan again"),
        ("", "1.5", "made with version unknown of the code, and this is 1.5; plan again"),
        ("1.4", "", "made with version 1.4 of the code, and this is unknown; plan again"),
    ],
)
def test_a_plan_made_by_other_code_is_stale(planned: str, now: str, reason: str) -> None:
    with pytest.raises(PlanStale, match=reason):
        start(a_plan(version=planned), counts(validated=10), MADE_AT, actor="ann", code_version=now)


@pytest.mark.clause("OPS-2")
@pytest.mark.parametrize(
    "stands", [counts(validated=9), counts(validated=9, replaying=1), counts(validated=9, new=1)]
)
def test_a_plan_whose_letters_changed_is_stale(stands: PlanCounts) -> None:
    with pytest.raises(PlanStale, match="1 of the 10 letters of plan p-1 changed since; plan again"):
        start(a_plan(), stands, MADE_AT, actor="ann", code_version="1.4")


def test_a_plan_that_has_ended_does_not_begin_again() -> None:
    done, stopped = replace(a_plan(), phase=Phase.DONE), stop(a_plan(), actor="bert", reason="lunch")

    with pytest.raises(PlanStale, match="plan p-1 is done; plan again for what is left"):
        start(done, counts(validated=10), MADE_AT, actor="ann", code_version="1.4")
    with pytest.raises(PlanStale, match="plan p-1 was stopped: by bert: lunch; plan again for what is left"):
        start(stopped, counts(validated=10), MADE_AT, actor="ann", code_version="1.4")


# How it moves.


@pytest.mark.clause("OPS-2")
def test_a_canary_goes_alone_and_is_waited_for() -> None:
    plan = begun(a_plan(canary=2))

    gone = next_advance(plan, counts(validated=10), MADE_AT)
    meanwhile = next_advance(gone.plan, counts(validated=8, replaying=1, verified=1), MADE_AT + 60)

    assert gone.take == 2
    assert meanwhile == PlanAdvance(gone.plan)


@pytest.mark.clause("OPS-2")
def test_the_others_follow_when_all_of_the_canary_has_completed() -> None:
    plan, stands = sent(a_plan(canary=2)), counts(validated=8, verified=2)

    let_go = next_advance(plan, stands, MADE_AT + 60)
    followed = next_advance(let_go.plan, stands, MADE_AT + 60)

    assert (let_go.plan.phase, let_go.take) == (Phase.PACED, 0)
    assert followed.take == 8


@pytest.mark.clause("OPS-2")
def test_a_canary_that_was_closed_since_it_completed_stops_no_letter() -> None:
    plan, stands = sent(a_plan(canary=2)), counts(validated=8, verified=1, closed=1)

    assert next_advance(plan, stands, MADE_AT + 60).plan.phase is Phase.PACED


@pytest.mark.clause("OPS-2")
@pytest.mark.parametrize(
    ("stands", "why"),
    [
        (counts(validated=9, new=1), "the canary did not complete"),
        (counts(validated=9, discarded=1), "the canary did not complete"),  # an operator cancelled its job
        (counts(validated=9, new=1, repeated=1), "the canary failed in the same place as before"),
    ],
)
def test_no_letter_follows_a_canary_that_did_not_complete(stands: PlanCounts, why: str) -> None:
    plan = sent(a_plan())

    advance = next_advance(plan, stands, MADE_AT + 60)

    assert advance == PlanAdvance(replace(plan, phase=Phase.STOPPED, why=why))


def test_one_failure_in_a_canary_stops_the_plan_while_the_rest_of_it_is_in_flight() -> None:
    plan = sent(a_plan(canary=3))

    advance = next_advance(plan, counts(validated=7, replaying=2, new=1), MADE_AT + 60)

    assert (advance.plan.phase, advance.take) == (Phase.STOPPED, 0)


@pytest.mark.parametrize("stands", [counts(validated=8, new=1), counts(validated=9), counts(validated=8)])
def test_no_letter_takes_the_place_of_a_canary_that_an_operator_took_out_of_the_plan(
    stands: PlanCounts,
) -> None:
    plan = sent(a_plan(canary=2))

    advance = next_advance(plan, stands, MADE_AT + 60)

    assert (advance.plan.phase, advance.take) == (Phase.STOPPED, 0)


def test_a_canary_is_no_larger_than_what_is_left_to_send() -> None:
    plan = begun(a_plan(canary=5))

    assert next_advance(plan, counts(validated=3), MADE_AT).take == 3


def test_a_plan_whose_letters_were_all_taken_out_by_hand_is_done() -> None:
    plan = begun(a_plan())

    let_go = next_advance(plan, counts(), MADE_AT)
    ended = next_advance(let_go.plan, counts(), MADE_AT)

    assert (let_go.take, ended.take) == (0, 0)
    assert (ended.plan.phase, ended.plan.why) == (
        Phase.DONE,
        "10 of its 10 letters were removed from it by other steps",
    )


def test_a_plan_of_no_letters_is_done_at_once() -> None:
    ended = next_advance(begun(a_plan(0)), counts(), MADE_AT)

    assert (ended.plan.phase, ended.take) == (Phase.DONE, 0)


def test_a_plan_is_done_when_the_last_job_has_ended_however_it_ended() -> None:
    plan = paced(a_plan())

    assert next_advance(plan, counts(verified=9, replaying=1), MADE_AT + 60) == PlanAdvance(plan)
    for stands in (counts(verified=9, new=1), counts(verified=4, closed=5, discarded=1)):
        ended = next_advance(plan, stands, MADE_AT + 60).plan
        assert (ended.phase, ended.why) == (Phase.DONE, "")


def test_a_plan_that_letters_have_left_says_so_when_it_is_done() -> None:
    ended = next_advance(paced(a_plan()), counts(verified=7, closed=1), MADE_AT + 60).plan

    assert (ended.phase, ended.why) == (Phase.DONE, "2 of its 10 letters were removed from it by other steps")


@pytest.mark.parametrize(
    ("pace", "take", "pause"),
    [(10.0, 10, 1.0), (2.0, 2, 1.0), (2.4, 2, 2 / 2.4), (1.0, 1, 1.0), (0.4, 1, 2.5), (0.1, 1, 10.0)],
)
def test_letters_go_by_handfuls_and_each_handful_waits_for_its_time(
    pace: float, take: int, pause: float
) -> None:
    plan, stands = paced(a_plan(100, pace=pace)), counts(validated=100)

    gone = next_advance(plan, stands, MADE_AT)
    again = gone.plan.next_at

    assert gone.take == take
    assert again == pytest.approx(MADE_AT + pause)
    assert next_advance(gone.plan, stands, again - 0.001) == PlanAdvance(gone.plan)
    assert next_advance(gone.plan, stands, again).take == take


def test_a_late_step_does_not_replay_more_for_the_time_without_steps() -> None:
    plan = paced(a_plan(100))

    gone = next_advance(plan, counts(validated=100), MADE_AT + 600)

    assert gone.take == 10
    assert gone.plan.next_at == MADE_AT + 601


@given(PLANS, STANDINGS, INSTANTS)
def test_whatever_is_read_no_more_goes_than_waits_and_nothing_for_a_plan_that_does_not_run(
    plan: Plan, stands: PlanCounts, now: float
) -> None:
    advance = next_advance(plan, stands, now)

    assert 0 <= advance.take <= stands.count(VALIDATED)
    assert plan.is_running or advance == PlanAdvance(plan)
    assert advance.take == 0 or advance.plan.is_running


@given(PLANS, STANDINGS, INSTANTS)
def test_what_was_decided_upon_is_never_undone(plan: Plan, stands: PlanCounts, now: float) -> None:
    order = list(Phase)

    moved = next_advance(plan, stands, now).plan

    assert order.index(moved.phase) >= order.index(plan.phase)
    assert moved.sent >= plan.sent
    assert replace(moved, phase=plan.phase, sent=plan.sent, next_at=plan.next_at, why=plan.why) == plan


def test_a_stopped_plan_says_why_and_one_that_was_not_begun_never_begins() -> None:
    running = begun(a_plan())

    assert stop(running, actor="bert", reason="lunch") == replace(
        running, phase=Phase.STOPPED, actor="bert", why="by bert: lunch"
    )
    assert stop(running, actor="bert").why == "by bert"
    assert not stop(a_plan(), actor="bert").is_running
    with pytest.raises(PlanStale, match="was stopped: by bert"):
        begun(stop(a_plan(), actor="bert"))


@pytest.mark.parametrize("phase", [Phase.DONE, Phase.STOPPED])
def test_a_plan_that_has_ended_cannot_be_stopped(phase: Phase) -> None:
    ended = replace(a_plan(), phase=phase, why="as it was")

    assert stop(ended, actor="bert") == ended


@pytest.mark.parametrize("phase", Phase)
def test_no_plan_is_begun_or_stopped_without_an_actor(phase: Phase) -> None:
    plan = replace(a_plan(), phase=phase)

    with pytest.raises(StepRefused, match="actor= must not be empty"):
        start(plan, counts(validated=10), MADE_AT, actor=" ", code_version="1.4")
    with pytest.raises(StepRefused, match="actor= must not be empty"):
        stop(plan, actor="")


class Replaying(RuleBasedStateMachine):
    """A plan beside a plain list of its letters, while jobs end and people take letters out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = MADE_AT
        self.letters: list[LetterState] = []
        self.followed: list[tuple[float, int]] = []

    @initialize(letters=st.integers(0, 6), canary=st.integers(0, 3), pace=st.floats(0.05, 4))
    def begin(self, letters: int, canary: int, pace: float) -> None:
        self.letters = [VALIDATED] * letters
        self.has_canary = 0 < canary < letters
        self.plan = begun(a_plan(letters, canary=canary, pace=pace))

    def stands(self) -> PlanCounts:
        return PlanCounts(Counter(self.letters))

    @rule(seconds=st.floats(0, 3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_worker_looks(self) -> None:
        before, stands = self.plan, self.stands()
        self.plan, take = next_advance(before, stands, self.now)
        for _ in range(take):
            self.letters[self.letters.index(VALIDATED)] = REPLAYING
        if before.phase is Phase.PACED and take:
            self.followed.append((self.now, take))
        if (before.phase, self.plan.phase) == (Phase.CANARY, Phase.PACED):
            self.the_canary_has_completed(stands)

    def the_canary_has_completed(self, stands: PlanCounts) -> None:
        assert stands.replayed == stands.count(VERIFIED)
        assert stands.count(VERIFIED) >= self.plan.canary or stands.count(VALIDATED) == 0

    @precondition(lambda self: REPLAYING in self.letters)
    @rule(end=st.sampled_from([VERIFIED, NEW, DISCARDED]))
    def a_job_ends(self, end: LetterState) -> None:
        self.letters[self.letters.index(REPLAYING)] = end

    @precondition(lambda self: any(state is not REPLAYING for state in self.letters))
    @rule(data=st.data())
    def an_operator_takes_a_letter_out(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(sorted(set(self.letters) - {REPLAYING})))
        self.letters.remove(state)

    @rule(rarely=st.integers(0, 9))
    def an_operator_stops_it(self, rarely: int) -> None:
        if rarely == 0:
            self.plan = stop(self.plan, actor="eve")

    @invariant()
    def a_canary_is_alone(self) -> None:
        if self.letters and self.plan.phase is Phase.CANARY:
            assert self.stands().replayed <= self.plan.canary

    @invariant()
    def no_letter_follows_before_a_canary(self) -> None:
        if self.letters and self.has_canary and self.plan.phase is Phase.CANARY:
            assert self.followed == []

    @invariant()
    def the_pace_is_kept_in_every_stretch_of_time(self) -> None:
        for first, (since, _) in enumerate(self.followed):
            stretch = self.followed[first:]
            until, last = stretch[-1]
            # What went at its end may use the time that comes after it.
            assert sum(take for _, take in stretch) - last <= self.plan.pace * (until - since) + 1e-6

    def teardown(self) -> None:
        """Whatever was done, the plan ends with its letters: let each job complete, and look once for each letter."""
        for _ in range(2 * len(self.letters) + 3):
            self.now += 1 / self.plan.pace * len(self.letters) + 2
            self.a_worker_looks()
            self.letters = [VERIFIED if state is REPLAYING else state for state in self.letters]
        assert not self.plan.is_running
        assert self.plan.phase is Phase.STOPPED or VALIDATED not in self.letters


Replaying.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
test_a_plan_keeps_its_word_whatever_jobs_and_people_do_meanwhile = Replaying.TestCase


# What its dry run looks at.


READY = Facts(finished=["fetch"], code_version="1.5")


def verdicts(found: Sequence[PreflightCheck]) -> dict[str, bool]:
    return {check.what: check.holds for check in found}


def result_of(letter: Letter, facts: Facts, what: str, *, restart: bool = False) -> tuple[bool, str]:
    [check] = [check for check in checks(letter, facts, restart=restart) if check.what == what]
    return check.holds, check.detail


def remediated(cause: Cause = Cause.DATA, *, version: str = "1.4") -> Letter:
    return a_letter(REMEDIATED, cause=cause, context={"code_version": version})


@pytest.mark.clause("OPS-2")
def test_a_letter_for_whose_replay_everything_speaks_passes_every_check() -> None:
    found = checks(remediated(), READY, restart=False)

    assert verdicts(found) == dict.fromkeys(
        ["workflow", "schema", "input", "stages", "provider", "version"], True
    )
    assert [check.detail for check in found] == [
        "cause data, evidence on record",
        "the schema fits",
        "the function takes the arguments",
        "kept: fetch",
        "it called no provider",
        "version 1.5",
    ]


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize("state", LetterState)
def test_a_dry_run_refuses_a_letter_without_cause_and_evidence(state: LetterState) -> None:
    holds, words = result_of(replace(remediated(), state=state), READY, "workflow")

    assert holds == (state in (REMEDIATED, VALIDATED))
    assert holds or words == f"it is {state}; cause and evidence come first"


@pytest.mark.clause("OPS-2")
@pytest.mark.parametrize(
    ("facts", "what", "words"),
    [
        (Facts(schema="the schema is at 3; migrate"), "schema", "the schema is at 3; migrate"),
        (Facts(gone=True), "job", "its job is gone, and nothing is left to replay"),
        (Facts(gone=True, declared=False), "job", "its job is gone, and nothing is left to replay"),
        (Facts(declared=False), "job", "no job named 'grade' is declared here; import its module"),
        (Facts(input_refused="essay is missing"), "input", "essay is missing"),
        (Facts(plan="p1"), "workflow", "it waits in plan p1, which has begun; stop that first"),
        (
            Facts(misfits=["fetch gave text", "llm is gone"]),
            "stages",
            "fetch gave text; llm is gone; replay with restart, or repair the code",
        ),
        (Facts(unavailable="llm is open until 12:00"), "provider", "llm is open until 12:00"),
    ],
)
def test_one_thing_that_speaks_against_a_replay_is_reported_in_its_own_words(
    facts: Facts, what: str, words: str
) -> None:
    found = checks(remediated(), facts, restart=False)

    assert [name for name, holds in verdicts(found).items() if not holds] == [what]
    assert result_of(remediated(), facts, what) == (False, words)


def test_of_a_job_that_is_not_declared_nothing_more_is_reported() -> None:
    found = checks(remediated(), Facts(declared=False, unavailable="it is open"), restart=False)

    assert list(verdicts(found)) == ["workflow", "schema", "job"]


@pytest.mark.clause("OPS-2")
def test_finished_stages_are_kept_unless_all_of_them_run_again() -> None:
    misfit = Facts(finished=["fetch", "llm"], misfits=["llm is gone"])

    assert result_of(remediated(), Facts(finished=["fetch", "llm"]), "stages") == (True, "kept: fetch, llm")
    assert result_of(remediated(), Facts(), "stages") == (True, "no stage is finished")
    assert result_of(remediated(), misfit, "stages", restart=True) == (True, "all stages run again")


def test_of_corrected_arguments_a_dry_run_says_what_a_kept_stage_may_make_of_them() -> None:
    corrected = replace(remediated(), corrected=True)
    warning = "kept: fetch; one that gets a corrected argument stops the job, and restart runs all again"

    assert result_of(corrected, Facts(finished=["fetch"]), "stages") == (True, warning)
    assert result_of(corrected, Facts(), "stages") == (True, "no stage is finished")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("1.4", "1.5", (True, "failed with 1.4, this is 1.5")),
        ("1.4", "1.4", (False, "failed with 1.4, this is 1.4: deploy the repaired code first")),
        ("", "1.4", (True, "the code's version is not known; set HOLDFAST_CODE_VERSION to have it compared")),
        ("1.4", "", (True, "the code's version is not known; set HOLDFAST_CODE_VERSION to have it compared")),
    ],
)
def test_a_mistake_in_the_code_is_not_replayed_with_the_same_code(
    before: str, now: str, expected: tuple[bool, str]
) -> None:
    letter = remediated(Cause.CODE, version=before)

    assert result_of(letter, Facts(code_version=now), "version") == expected


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.CODE])
def test_for_any_other_cause_the_same_code_will_do(cause: Cause) -> None:
    letter = remediated(cause)

    assert result_of(letter, Facts(code_version="1.4"), "version") == (True, "version 1.4")
    assert result_of(letter, Facts(), "version") == (True, "version unknown")


# Without a person.


LEAVE = AutoReplay("grading twice does no harm", after=timedelta(minutes=10))
DUE = LAST + timedelta(minutes=10)


def goes(letter: Letter | None = None, *, now: datetime = DUE) -> bool:
    return is_due(letter or a_letter(error_class=ErrorClass.NETWORK_TIMEOUT), LEAVE, now)


def test_a_letter_whose_failure_passes_is_replayed_automatically_when_its_time_has_come() -> None:
    assert goes()
    assert not goes(now=DUE - timedelta(microseconds=1))


def test_a_letter_whose_time_came_long_ago_is_left_to_people() -> None:
    assert goes(now=DUE + NOT_LATER - timedelta(microseconds=1))
    assert not goes(now=DUE + NOT_LATER)


@pytest.mark.parametrize("state", [state for state in LetterState if state is not NEW])
def test_a_letter_that_an_operator_works_on_is_left_to_them(state: LetterState) -> None:
    assert not goes(a_letter(state))


def test_a_letter_is_replayed_automatically_once() -> None:
    assert not goes(a_letter(replays=1))


def test_what_no_retry_repairs_is_not_replayed_automatically() -> None:
    assert not goes(a_letter(error_class=ErrorClass.SCHEMA_INVALID))


def test_nothing_is_replayed_automatically_past_its_deadline() -> None:
    assert is_in_time(None, DUE)
    assert is_in_time(DUE + timedelta(microseconds=1), DUE)
    assert not is_in_time(DUE, DUE)


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize("safe", ["", "  "])
def test_a_job_may_be_replayed_automatically_only_with_words_for_its_safety(safe: str) -> None:
    with pytest.raises(ValueError, match="safe is empty; say why it does no harm"):
        AutoReplay(safe)


@pytest.mark.parametrize("after", ["5m", 300, 300.0, timedelta(minutes=5)])
def test_a_job_is_replayed_automatically_after_any_duration_that_people_write(after: Duration) -> None:
    leave, letter = AutoReplay("safe", after=after), a_letter(error_class=ErrorClass.NETWORK_TIMEOUT)

    assert is_due(letter, leave, LAST + timedelta(minutes=5))
    assert not is_due(letter, leave, LAST + timedelta(minutes=5, microseconds=-1))


@pytest.mark.parametrize("after", ["soon", -1, None, math.inf])
def test_a_time_that_is_no_length_is_refused_before_a_letter_waits_for_it(after: Any) -> None:
    with pytest.raises(ValueError, match=r"[Dd]uration"):
        AutoReplay("safe", after=after)
