"""How reports of calls change the state of a breaker."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.providers.breaker import LONGEST_PAUSE, Breaker
from holdfast.core.providers.breaker_state import (
    BreakerState,
    OpenCause,
    failure_rate,
    lets_through,
    state_name,
    with_probe,
)
from holdfast.core.providers.call_reports import (
    SHORTEST_PAUSE,
    BreakerChange,
    CallOutcome,
    CallReport,
    apply_reports,
    event_details,
    exceeds_threshold,
    needs_no_write,
)
from holdfast.core.providers.permission import CallPermission, call_permission, extend_trials, take_trial
from holdfast.core.providers.ramp import release, seconds_to_next_release
from tests.unit.breakers import (
    ASKED_TO_PAUSE,
    BAD,
    BLOCKED,
    BREAKER,
    COOLDOWN,
    DENIED,
    EXHAUSTED,
    GOOD,
    HALF_OPEN,
    IGNORED,
    LEASE,
    LIMITED,
    NOW,
    OPEN,
    after_calls,
    after_trial,
    calls,
    kinds,
    with_trial,
)


@pytest.mark.clause("BRK-1")
@pytest.mark.parametrize(
    ("good", "bad", "opens"),
    [
        (9, 11, True),
        (10, 10, False),
        (4, 6, True),
        (5, 5, False),
        (0, 9, False),
        (0, 10, True),
        (20, 0, False),
    ],
)
def test_more_than_half_of_at_least_ten_calls_have_to_fail(good: int, bad: int, opens: bool) -> None:
    assert exceeds_threshold(calls(good, bad), BREAKER) is opens


@pytest.mark.clause("BRK-1")
@given(st.lists(st.sampled_from([GOOD, BAD]), max_size=60))
def test_it_opens_with_the_first_call_that_leaves_more_than_half_of_the_last_twenty_failed(
    outcomes: list[CallOutcome],
) -> None:
    state, opened = BreakerState(), []
    for number, outcome in enumerate(outcomes):
        state, changes = apply_reports(state, BREAKER, [CallReport(outcome, 1)], NOW)
        opened += [number] * len(changes)

    windows = (outcomes[max(0, last - 19) : last + 1] for last in range(len(outcomes)))
    bad = [
        last
        for last, window in enumerate(windows)
        if len(window) >= 10 < 2 * window.count(BAD) - len(window) + 10
    ]
    assert opened == bad[:1]


@pytest.mark.clause("BRK-1")
def test_the_twenty_first_outcome_drives_the_first_out() -> None:
    bad_ones_first = BreakerState(seen=tuple(calls(good=10, bad=10)))
    good_ones_first = BreakerState(seen=bad_ones_first.seen[::-1])

    assert failure_rate(after_calls(bad_ones_first, GOOD)) == 9 / 20
    assert lets_through(after_calls(bad_ones_first, BAD)), "still ten of twenty"
    assert not lets_through(after_calls(good_ones_first, BAD)), "eleven of twenty"


@pytest.mark.clause("BRK-1")
def test_nine_calls_never_open_it_though_all_of_them_failed() -> None:
    state = after_calls(BreakerState(), *[BAD] * 9)

    assert call_permission(state, BREAKER, NOW) is CallPermission.FREE
    assert call_permission(after_calls(state, BAD), BREAKER, NOW) is CallPermission.NONE


def test_calls_older_than_the_age_do_not_count() -> None:
    old = after_calls(BreakerState(), *[BAD] * 9, now=NOW)

    assert lets_through(after_calls(old, BAD, now=NOW + 120)), "two minutes are too long ago"
    assert not lets_through(after_calls(old, BAD, now=NOW + 119))


@pytest.mark.clause("BRK-1")
@pytest.mark.parametrize("nothing", [IGNORED, DENIED])
def test_a_call_that_says_nothing_about_failing_is_not_counted(nothing: CallOutcome) -> None:
    state = after_calls(BreakerState(), *[BAD] * 9, nothing)

    assert lets_through(state)
    assert len(state.seen) == 9


@pytest.mark.clause("BRK-1")
@given(st.lists(st.sampled_from([LIMITED, GOOD, IGNORED]), max_size=80), st.floats(0, 400))
def test_a_storm_of_requests_to_slow_down_never_opens_it_by_failures(
    outcomes: list[CallOutcome], wait: float
) -> None:
    state, now, causes = BreakerState(), NOW, set()
    for outcome in outcomes:
        if state.open_period is not None:
            causes.add(state.open_period.cause)
            now = state.open_period.until
            state, _ = after_trial(with_trial(state, now=now), "a 1", outcome, now)
        else:
            state = after_calls(state, outcome, now=now, wait=wait)

    assert causes <= {OpenCause.LIMITED}


def test_a_success_that_was_slow_can_be_the_call_that_opens_it() -> None:
    slow_breaker = Breaker(slow_after=2)

    state, changes = apply_reports(BreakerState(), slow_breaker, [CallReport(GOOD, 1, slow=True)] * 10, NOW)

    assert state_name(state, NOW) == "open"
    assert changes == [BreakerChange("opened", OpenCause.FAILURES, COOLDOWN, failed=0, seen=10)]


@pytest.mark.parametrize("outcome", list(CallOutcome))
@pytest.mark.parametrize("state", [OPEN, HALF_OPEN, ASKED_TO_PAUSE, BLOCKED])
def test_a_call_that_was_let_through_before_changes_nothing_any_more(
    state: BreakerState, outcome: CallOutcome
) -> None:
    late = CallReport(outcome, state.generation - 1)

    assert apply_reports(state, BREAKER, [late] * 20, NOW + 1) == (state, [])


@pytest.mark.clause("BRK-4")
def test_two_workers_that_see_it_break_at_once_open_it_once_and_for_no_longer() -> None:
    nine = after_calls(BreakerState(), *[BAD] * 9)
    first, _ = apply_reports(nine, BREAKER, [CallReport(BAD, 1)], NOW)
    also, _ = apply_reports(nine, BREAKER, [CallReport(BAD, 1)], NOW + 0.01)
    assert not lets_through(first)
    assert not lets_through(also), "each alone would open it"

    # The write of the other is refused: it reads the new state and decides again.
    again, changes = apply_reports(first, BREAKER, [CallReport(BAD, 1)], NOW + 0.01)

    assert (again, changes) == (first, [])


def test_what_comes_after_the_opening_within_one_report_is_dropped() -> None:
    state, changes = apply_reports(BreakerState(), BREAKER, [CallReport(BAD, 1)] * 40, NOW)

    assert state.generation == 2
    assert changes == [BreakerChange("opened", OpenCause.FAILURES, COOLDOWN, failed=10, seen=10)]


@pytest.mark.clause("BRK-3")
def test_three_successes_close_it_and_two_do_not() -> None:
    state = with_trial(with_trial(with_trial(HALF_OPEN, "a 1"), "b 1"), "c 1")

    state, first = after_trial(state, "a 1", GOOD)
    state, second = after_trial(state, "b 1", GOOD)
    assert state_name(state, NOW) == "half-open"
    assert call_permission(state, BREAKER, NOW) is CallPermission.NONE, (
        "two have succeeded, and the third is in flight"
    )
    state, third = after_trial(state, "c 1", GOOD, NOW + 5)

    assert lets_through(state)
    assert kinds(first + second + third) == ["tried", "tried", "tried", "closed"]
    assert third[-1] == BreakerChange("closed", OpenCause.FAILURES, 35.0), (
        "open for its cooldown and for the trials"
    )


@pytest.mark.clause("BRK-3")
def test_one_failure_opens_it_for_another_cooldown_and_the_other_trials_count_no_more() -> None:
    state = with_trial(with_trial(HALF_OPEN, "a 1"), "b 1")
    state, _ = after_trial(state, "a 1", GOOD)
    before = state

    state, changes = after_trial(state, "b 1", BAD, NOW + 1)
    late = CallReport(GOOD, before.generation, trial="a 1")

    assert kinds(changes) == ["tried", "opened"]
    assert call_permission(state, BREAKER, NOW + COOLDOWN) is CallPermission.NONE
    assert call_permission(state, BREAKER, NOW + 1 + COOLDOWN) is CallPermission.TRIAL
    assert state.open_period is not None
    assert state.open_period.passed == 0
    assert state.open_period.since == NOW - COOLDOWN, "since when calls are refused"
    assert apply_reports(state, BREAKER, [late], NOW + 2) == (state, [])


def test_a_trial_that_says_nothing_frees_its_slot_without_a_verdict() -> None:
    full = with_trial(with_trial(with_trial(HALF_OPEN, "a 1"), "b 1"), "c 1")

    state, changes = after_trial(full, "a 1", IGNORED)

    assert changes == [BreakerChange("tried", OpenCause.FAILURES, outcome=IGNORED)]
    assert (state.generation, state.open_period) == (full.generation, full.open_period)
    assert call_permission(state, BREAKER, NOW) is CallPermission.TRIAL


@pytest.mark.parametrize("state", [ASKED_TO_PAUSE, BLOCKED])
def test_after_a_pause_or_a_block_one_trial_decides(state: BreakerState) -> None:
    assert state.open_period is not None
    until = state.open_period.until

    trying = with_trial(state, "a 1", until)
    closed, changes = after_trial(trying, "a 1", GOOD, until)

    assert take_trial(trying, BREAKER, until, slot="b 1") is None
    assert lets_through(closed)
    assert kinds(changes) == ["tried", "closed"]


@pytest.mark.parametrize(
    ("outcome", "name", "seconds"),
    [
        (BAD, "open", COOLDOWN),
        (DENIED, "blocked", 300.0),
        (EXHAUSTED, "blocked", 300.0),
    ],
)
@pytest.mark.parametrize("state", [HALF_OPEN, ASKED_TO_PAUSE, BLOCKED])
def test_a_trial_that_fails_for_another_cause_opens_it_for_that_cause(
    state: BreakerState, outcome: CallOutcome, name: str, seconds: float
) -> None:
    assert state.open_period is not None
    until = state.open_period.until

    opened, changes = after_trial(with_trial(state, now=until), "a 1", outcome, until)

    assert state_name(opened, until) == name
    assert seconds_to_next_release(opened, until) == seconds
    assert kinds(changes) == ["tried", "opened"]


@pytest.mark.parametrize(
    ("state", "least"), [(HALF_OPEN, COOLDOWN), (ASKED_TO_PAUSE, SHORTEST_PAUSE), (BLOCKED, LONGEST_PAUSE)]
)
@pytest.mark.parametrize("wait", [None, 0.5, 60.0])
def test_a_trial_that_is_asked_to_slow_down_only_moves_the_next_one(
    state: BreakerState, least: float, wait: float | None
) -> None:
    assert state.open_period is not None
    until = state.open_period.until
    trial = CallReport(LIMITED, state.generation, wait=wait, trial="a 1")

    opened, changes = apply_reports(with_trial(state, now=until), BREAKER, [trial], until)

    assert opened.open_period is not None
    assert opened.open_period == state.open_period._replace(until=until + max(least, wait or 0.0)), (
        "for the reason it had"
    )
    assert [change.again for change in changes] == [False, True], "that needs no alert"


def test_a_request_to_slow_down_takes_nothing_away_of_what_is_known_of_failures() -> None:
    state = after_calls(BreakerState(), DENIED, DENIED, *[BAD] * 9)

    paused = after_calls(state, LIMITED)
    closed, _ = after_trial(with_trial(paused, now=NOW + 1), "a 1", GOOD, NOW + 1)

    assert (paused.seen, paused.denials) == (state.seen, state.denials)
    assert closed.seen == state.seen
    assert not lets_through(after_calls(closed, BAD, now=NOW + 1)), "the tenth"


def test_whatever_else_opens_it_begins_a_new_window() -> None:
    state = after_calls(BreakerState(), DENIED, DENIED, *[BAD] * 9)

    assert [
        (opened.seen, opened.denials) for opened in (after_calls(state, BAD), after_calls(state, DENIED))
    ] == [((), 0)] * 2


class Workers(RuleBasedStateMachine):
    """Any number of workers of one breaker: they call, take trials, sleep, die, and report late, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.now, self.numbers = BreakerState(), NOW, count(1)
        self.calls: list[CallReport] = []
        self.leases: dict[str, float] = {}

    @initialize(trials=st.integers(1, 4))
    def declare(self, trials: int) -> None:
        self.breaker = Breaker(window=6, minimum=3, trials=trials)

    @rule()
    def begin(self) -> None:
        match call_permission(self.state, self.breaker, self.now, released=True):
            case CallPermission.FREE:
                self.calls.append(CallReport(GOOD, self.state.generation))
            case CallPermission.TRIAL:
                slot = f"slot {next(self.numbers)}"
                self.state = with_trial(self.state, slot, self.now, self.breaker)
                self.leases[slot] = self.now + LEASE
                self.calls.append(CallReport(GOOD, self.state.generation, trial=slot))
            case CallPermission.NONE:
                pass  # the job is held

    @precondition(lambda self: self.calls)
    @rule(choice=st.integers(0), outcome=st.sampled_from(CallOutcome), wait=st.none() | st.floats(0, 60))
    def end(self, choice: int, outcome: CallOutcome, wait: float | None) -> None:
        call = self.calls.pop(choice % len(self.calls))
        before = self.state
        expired = call.trial is not None and self.leases.pop(call.trial) <= self.now

        self.state, changes = apply_reports(
            before, self.breaker, [call._replace(outcome=outcome, wait=wait)], self.now
        )

        moved = [kind for kind in kinds(changes) if kind != "tried"]
        assert len(moved) == self.state.generation - before.generation <= 1
        if expired or call.generation != before.generation:
            assert (self.state, changes) == (before, [])
        if moved == ["closed"]:
            assert (outcome, call.trial is None) == (GOOD, False)

    @precondition(lambda self: self.leases)
    @rule(choice=st.integers(0))
    def keep(self, choice: int) -> None:
        slot = sorted(self.leases)[choice % len(self.leases)]
        self.state = extend_trials(self.state, {slot}, self.now)
        if self.now < self.leases[slot] < self.now + LEASE / 2:
            self.leases[slot] = self.now + LEASE

    @precondition(lambda self: self.leases)
    @rule(choice=st.integers(0))
    def die(self, choice: int) -> None:
        slot = sorted(self.leases)[choice % len(self.leases)]
        self.calls = [call for call in self.calls if call.trial != slot]

    @rule(seconds=st.sampled_from([0.0625, 1.0, 6.0, 31.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def probe(self) -> None:
        self.state = with_probe(self.state)

    @invariant()
    def no_more_trials_are_alive_than_are_allowed(self) -> None:
        in_flight = [call for call in self.calls if call.generation == self.state.generation and call.trial]
        live_trials = [call for call in in_flight if self.leases[str(call.trial)] > self.now]
        assert len(live_trials) <= self.breaker.trials

    @invariant()
    def a_breaker_never_stays_open_for_longer_than_the_longest_pause(self) -> None:
        move = seconds_to_next_release(self.state, self.now)
        assert lets_through(self.state) or (move is not None and move <= LONGEST_PAUSE)

    @invariant()
    def trials_are_there_only_where_they_are_needed(self) -> None:
        assert not (lets_through(self.state) and (self.state.trials or self.state.probes))


Workers.TestCase.settings = settings(max_examples=60, stateful_step_count=40)


TestAnyNumberOfWorkersOfOneBreaker = pytest.mark.clause("BRK-3")(Workers.TestCase)


@pytest.mark.clause("BRK-1")
@pytest.mark.clause("RET-4")
@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        (8.0, 8.0),
        (None, SHORTEST_PAUSE),
        (0.0, SHORTEST_PAUSE),
        (-5.0, SHORTEST_PAUSE),
        (float("nan"), SHORTEST_PAUSE),
        (1e9, LONGEST_PAUSE),
        (float("inf"), LONGEST_PAUSE),
    ],
)
def test_a_request_to_slow_down_pauses_the_provider_for_as_long_as_it_asks(
    wait: float | None, seconds: float
) -> None:
    state, changes = apply_reports(BreakerState(), BREAKER, [CallReport(LIMITED, 1, wait=wait)], NOW)

    assert changes == [BreakerChange("opened", OpenCause.LIMITED, seconds)]
    assert call_permission(state, BREAKER, NOW + seconds - 0.001) is CallPermission.NONE
    assert call_permission(state, BREAKER, NOW + seconds) is CallPermission.TRIAL
    assert state_name(state, NOW + seconds) == "limited"


def test_a_spent_quota_blocks_the_provider_at_once() -> None:
    state = after_calls(BreakerState(), EXHAUSTED)

    assert state_name(state, NOW) == "blocked"
    assert seconds_to_next_release(state, NOW) == LONGEST_PAUSE


@pytest.mark.parametrize(
    ("outcomes", "name"),
    [
        ([DENIED, DENIED], "closed"),
        ([DENIED, DENIED, DENIED], "blocked"),
        ([DENIED, DENIED, GOOD, DENIED, DENIED], "closed"),
        ([DENIED, DENIED, GOOD, DENIED, DENIED, DENIED], "blocked"),
        ([DENIED, IGNORED, DENIED, BAD, DENIED], "blocked"),
    ],
)
def test_refused_credentials_block_it_after_three_without_a_success_between(
    outcomes: list[CallOutcome], name: str
) -> None:
    assert state_name(after_calls(BreakerState(), *outcomes), NOW) == name


def test_a_probe_that_succeeds_lets_the_other_trials_begin() -> None:
    state, _ = after_trial(with_trial(with_probe(OPEN)), "a 1", GOOD)

    assert state_name(state, NOW) == "half-open"
    assert release(state, BREAKER, NOW)[1] == 2


def test_a_probe_that_succeeds_closes_the_breaker_of_a_blocked_provider_and_drops_the_other_probes() -> None:
    state, changes = after_trial(with_trial(with_probe(with_probe(BLOCKED))), "a 1", GOOD)

    assert kinds(changes) == ["tried", "closed"]
    assert (state.probes, call_permission(state, BREAKER, NOW, released=True)) == (0, CallPermission.FREE)


@pytest.mark.parametrize(
    ("change", "details"),
    [
        (
            BreakerChange("opened", OpenCause.FAILURES, 30.0004, failed=11, seen=20),
            {"cause": "failures", "seconds": 30.0, "failed": 11, "calls": 20},
        ),
        (BreakerChange("closed", OpenCause.BLOCKED, 301.5), {"cause": "blocked", "seconds": 301.5}),
        (BreakerChange("tried", OpenCause.LIMITED, outcome=GOOD), {"cause": "limited", "outcome": "success"}),
        (BreakerChange("tried", None, outcome=BAD), {"outcome": "failure"}),
        (
            BreakerChange("opened", OpenCause.LIMITED, 1.0, again=True),
            {"cause": "limited", "seconds": 1.0, "again": True},
        ),
    ],
)
def test_a_change_is_reported_in_plain_words_and_numbers(
    change: BreakerChange, details: dict[str, object]
) -> None:
    assert event_details(change) == details


def test_a_window_full_of_good_calls_that_stays_so_is_not_worth_a_write() -> None:
    calm = after_calls(BreakerState(), *[GOOD] * 20)

    assert needs_no_write(calm, after_calls(calm, GOOD, now=NOW + 59), BREAKER, NOW + 59)
    assert not needs_no_write(calm, after_calls(calm, GOOD, now=NOW + 60), BREAKER, NOW + 60), (
        "it would grow too old"
    )
    assert not needs_no_write(calm, after_calls(calm, BAD), BREAKER, NOW)
    assert not needs_no_write(calm, after_calls(calm, DENIED), BREAKER, NOW)
    assert not needs_no_write(after_calls(BreakerState(), *[GOOD] * 19), calm, BREAKER, NOW), (
        "it is not full yet"
    )


def test_a_provider_is_left_alone_for_longer_than_five_minutes_only_if_it_allows_that() -> None:
    asked = CallReport(LIMITED, BreakerState().generation, wait=7_200.0)

    def until(breaker: Breaker) -> float:
        state, _ = apply_reports(BreakerState(), breaker, [asked], NOW)
        assert state.open_period is not None
        return state.open_period.until - NOW

    assert until(Breaker()) == LONGEST_PAUSE
    assert until(Breaker(max_wait="1h")) == 3_600
    assert until(Breaker(max_wait="3h")) == 7_200
