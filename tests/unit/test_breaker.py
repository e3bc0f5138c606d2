"""When calls to a provider are let through, and what the ends of calls make of that."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.providers.breaker import LONGEST_PAUSE, Breaker
from holdfast.core.providers.breaker_state import (
    STATES,
    BreakerState,
    OpenCause,
    OpenPeriod,
    RecordedCall,
    Trial,
    calls_for_backup,
    failure_rate,
    failures,
    lets_through,
    open_seconds,
    overridden,
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
from holdfast.core.providers.override import Override, OverrideKind
from holdfast.core.providers.permission import CallPermission, call_permission, extend_trials, take_trial
from holdfast.core.providers.ramp import LARGEST_RELEASE, Ramp
from holdfast.core.providers.recovery import all_released, release, seconds_to_next_release

NOW = 1_000.0
LEASE = 10.0
COOLDOWN = 30.0
BREAKER = Breaker()

GOOD, BAD, IGNORED = CallOutcome.SUCCESS, CallOutcome.FAILURE, CallOutcome.IGNORED
LIMITED, DENIED, EXHAUSTED = CallOutcome.LIMITED, CallOutcome.DENIED, CallOutcome.EXHAUSTED

OPEN = BreakerState(
    generation=2, open_period=OpenPeriod(OpenCause.FAILURES, NOW, NOW + COOLDOWN, failed=11, seen=20)
)
HALF_OPEN = replace(OPEN, open_period=OpenPeriod(OpenCause.FAILURES, NOW - COOLDOWN, NOW, failed=11, seen=20))
PAUSED_FOR_A_HINT = BreakerState(generation=2, open_period=OpenPeriod(OpenCause.LIMITED, NOW, NOW + 8))
BLOCKED = BreakerState(generation=2, open_period=OpenPeriod(OpenCause.BLOCKED, NOW, NOW + LONGEST_PAUSE))


def an_order(command: OverrideKind) -> Override:
    return Override(command, "alice", "maintenance", NOW)


def under(command: OverrideKind, gate: BreakerState | None = None) -> BreakerState:
    return overridden(gate or BreakerState(), an_order(command), NOW)


def told(
    gate: BreakerState,
    *outcomes: CallOutcome,
    now: float = NOW,
    breaker: Breaker = BREAKER,
    wait: float | None = None,
) -> BreakerState:
    """The gate after calls that it let through ended so, whatever became of it meanwhile."""
    for outcome in outcomes:
        gate, _ = apply_reports(gate, breaker, [CallReport(outcome, gate.generation, wait=wait)], now)
    return gate


def with_trial(
    gate: BreakerState, slot: str = "a 1", now: float = NOW, breaker: Breaker = BREAKER
) -> BreakerState:
    taken = take_trial(gate, breaker, now, slot=slot)
    assert taken is not None
    return taken


def judged(
    gate: BreakerState, slot: str, outcome: CallOutcome, now: float = NOW, breaker: Breaker = BREAKER
) -> tuple[BreakerState, list[BreakerChange]]:
    return apply_reports(gate, breaker, [CallReport(outcome, gate.generation, trial=slot)], now)


def kinds(changes: Iterable[BreakerChange]) -> list[str]:
    return [change.kind for change in changes]


def calls(good: int, bad: int, slow: int = 0) -> list[RecordedCall]:
    return [RecordedCall(NOW, number < bad, number < slow) for number in range(good + bad)]


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
    gate, opened = BreakerState(), []
    for number, outcome in enumerate(outcomes):
        gate, changes = apply_reports(gate, BREAKER, [CallReport(outcome, 1)], NOW)
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

    assert failure_rate(told(bad_ones_first, GOOD)) == 9 / 20
    assert lets_through(told(bad_ones_first, BAD)), "still ten of twenty"
    assert not lets_through(told(good_ones_first, BAD)), "eleven of twenty"


@pytest.mark.clause("BRK-1")
def test_nine_calls_never_open_it_though_all_of_them_failed() -> None:
    gate = told(BreakerState(), *[BAD] * 9)

    assert call_permission(gate, BREAKER, NOW) is CallPermission.FREE
    assert call_permission(told(gate, BAD), BREAKER, NOW) is CallPermission.NONE


def test_calls_older_than_the_age_do_not_count() -> None:
    old = told(BreakerState(), *[BAD] * 9, now=NOW)

    assert lets_through(told(old, BAD, now=NOW + 120)), "two minutes are too long ago"
    assert not lets_through(told(old, BAD, now=NOW + 119))


@pytest.mark.clause("BRK-1")
@pytest.mark.parametrize("nothing", [IGNORED, DENIED])
def test_a_call_that_says_nothing_about_failing_is_not_counted(nothing: CallOutcome) -> None:
    gate = told(BreakerState(), *[BAD] * 9, nothing)

    assert lets_through(gate)
    assert len(gate.seen) == 9


@pytest.mark.clause("BRK-1")
@given(st.lists(st.sampled_from([LIMITED, GOOD, IGNORED]), max_size=80), st.floats(0, 400))
def test_a_storm_of_requests_to_slow_down_never_opens_it_by_failures(
    outcomes: list[CallOutcome], wait: float
) -> None:
    gate, now, causes = BreakerState(), NOW, set()
    for outcome in outcomes:
        if gate.open_period is not None:
            causes.add(gate.open_period.cause)
            now = gate.open_period.until
            gate, _ = judged(with_trial(gate, now=now), "a 1", outcome, now)
        else:
            gate = told(gate, outcome, now=now, wait=wait)

    assert causes <= {OpenCause.LIMITED}


def test_slow_calls_open_it_where_that_was_asked_for() -> None:
    sleepy = Breaker(slow_after="2s", slow_threshold=0.5)

    assert exceeds_threshold(calls(20, 0, slow=11), sleepy)
    assert not exceeds_threshold(calls(20, 0, slow=10), sleepy)
    assert not exceeds_threshold(calls(20, 0, slow=20), BREAKER)
    assert [sleepy.is_slow(seconds) for seconds in (2.0, 2.1)] == [False, True]
    assert not BREAKER.is_slow(1e9)


def test_a_success_that_was_slow_can_be_the_call_that_opens_it() -> None:
    sleepy = Breaker(slow_after=2)

    gate, changes = apply_reports(BreakerState(), sleepy, [CallReport(GOOD, 1, slow=True)] * 10, NOW)

    assert state_name(gate, NOW) == "open"
    assert changes == [BreakerChange("opened", OpenCause.FAILURES, COOLDOWN, failed=0, seen=10)]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Breaker(minimum=0), "from 1 to its window of 20, not 0"),
        (lambda: Breaker(minimum=21), "from 1 to its window of 20, not 21"),
        (lambda: Breaker(threshold=1), "from 0 to below 1, not 1"),
        (lambda: Breaker(threshold=-0.1), "from 0 to below 1, not -0.1"),
        (lambda: Breaker(slow_threshold=float("nan")), "from 0 to below 1, not nan"),
        (lambda: Breaker(trials=0), "at least one trial"),
        (lambda: Breaker(cooldown=0), "must be positive"),
        (lambda: Breaker(age="0s"), "must be positive"),
        (lambda: Breaker(slow_after=0), "must be positive"),
        (lambda: Breaker(slow_after="soon"), "Not a duration"),
        (lambda: Breaker(cooldown=-1), "negative"),
    ],
)
def test_a_breaker_that_could_never_open_or_never_close_is_refused(
    make: Callable[[], Breaker], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_the_least_a_breaker_can_be_is_allowed() -> None:
    strict = Breaker(window=1, minimum=1, threshold=0, trials=1, slow_threshold=0)

    assert exceeds_threshold([RecordedCall(NOW, failed=True, slow=False)], strict)
    assert not exceeds_threshold([RecordedCall(NOW, failed=False, slow=False)], strict)


@pytest.mark.clause("BRK-2")
def test_an_open_gate_lets_nobody_through_before_its_cooldown_is_over() -> None:
    assert call_permission(OPEN, BREAKER, NOW + COOLDOWN - 0.001) is CallPermission.NONE
    assert call_permission(OPEN, BREAKER, NOW + COOLDOWN - 0.001, released=True) is CallPermission.NONE
    assert take_trial(OPEN, BREAKER, NOW, slot="a 1") is None
    assert call_permission(OPEN, BREAKER, NOW + COOLDOWN) is CallPermission.TRIAL


@pytest.mark.parametrize("outcome", list(CallOutcome))
@pytest.mark.parametrize("gate", [OPEN, HALF_OPEN, PAUSED_FOR_A_HINT, BLOCKED])
def test_a_call_that_was_let_through_before_changes_nothing_any_more(
    gate: BreakerState, outcome: CallOutcome
) -> None:
    late = CallReport(outcome, gate.generation - 1)

    assert apply_reports(gate, BREAKER, [late] * 20, NOW + 1) == (gate, [])


@pytest.mark.clause("BRK-4")
def test_two_workers_that_see_it_break_at_once_open_it_once_and_shut_it_no_longer() -> None:
    nine = told(BreakerState(), *[BAD] * 9)
    first, _ = apply_reports(nine, BREAKER, [CallReport(BAD, 1)], NOW)
    also, _ = apply_reports(nine, BREAKER, [CallReport(BAD, 1)], NOW + 0.01)
    assert not lets_through(first)
    assert not lets_through(also), "each alone would open it"

    # The other comes second with its write, reads anew and decides again.
    again, changes = apply_reports(first, BREAKER, [CallReport(BAD, 1)], NOW + 0.01)

    assert (again, changes) == (first, [])


def test_what_comes_after_the_opening_within_one_report_is_dropped() -> None:
    gate, changes = apply_reports(BreakerState(), BREAKER, [CallReport(BAD, 1)] * 40, NOW)

    assert gate.generation == 2
    assert changes == [BreakerChange("opened", OpenCause.FAILURES, COOLDOWN, failed=10, seen=10)]


@pytest.mark.clause("BRK-3")
def test_fifty_workers_at_the_end_of_the_cooldown_get_three_trials_between_them() -> None:
    gate, slots = HALF_OPEN, 0
    for worker in range(50):
        taken = take_trial(gate, BREAKER, NOW, slot=f"{worker}")
        gate, slots = taken or gate, slots + (taken is not None)

    assert slots == 3
    assert call_permission(gate, BREAKER, NOW) is CallPermission.NONE


@pytest.mark.clause("BRK-3")
def test_three_successes_close_it_and_two_do_not() -> None:
    gate = with_trial(with_trial(with_trial(HALF_OPEN, "a 1"), "b 1"), "c 1")

    gate, first = judged(gate, "a 1", GOOD)
    gate, second = judged(gate, "b 1", GOOD)
    assert state_name(gate, NOW) == "half-open"
    assert call_permission(gate, BREAKER, NOW) is CallPermission.NONE, (
        "two have succeeded, and the third is under way"
    )
    gate, third = judged(gate, "c 1", GOOD, NOW + 5)

    assert lets_through(gate)
    assert kinds(first + second + third) == ["tried", "tried", "tried", "closed"]
    assert third[-1] == BreakerChange("closed", OpenCause.FAILURES, 35.0), (
        "shut for its cooldown and for the trials"
    )


@pytest.mark.clause("BRK-3")
def test_one_failure_opens_it_for_another_cooldown_and_the_other_trials_count_no_more() -> None:
    gate = with_trial(with_trial(HALF_OPEN, "a 1"), "b 1")
    gate, _ = judged(gate, "a 1", GOOD)
    before = gate

    gate, changes = judged(gate, "b 1", BAD, NOW + 1)
    late = CallReport(GOOD, before.generation, trial="a 1")

    assert kinds(changes) == ["tried", "opened"]
    assert call_permission(gate, BREAKER, NOW + COOLDOWN) is CallPermission.NONE
    assert call_permission(gate, BREAKER, NOW + 1 + COOLDOWN) is CallPermission.TRIAL
    assert gate.open_period is not None
    assert gate.open_period.passed == 0
    assert gate.open_period.since == NOW - COOLDOWN, "since when calls are turned away"
    assert apply_reports(gate, BREAKER, [late], NOW + 2) == (gate, [])


def test_a_trial_that_says_nothing_frees_its_slot_without_a_verdict() -> None:
    full = with_trial(with_trial(with_trial(HALF_OPEN, "a 1"), "b 1"), "c 1")

    gate, changes = judged(full, "a 1", IGNORED)

    assert changes == [BreakerChange("tried", OpenCause.FAILURES, outcome=IGNORED)]
    assert (gate.generation, gate.open_period) == (full.generation, full.open_period)
    assert call_permission(gate, BREAKER, NOW) is CallPermission.TRIAL


@pytest.mark.clause("BRK-3")
def test_the_slot_of_a_trial_whose_worker_died_goes_to_another_and_its_late_verdict_is_dropped() -> None:
    full = with_trial(with_trial(with_trial(HALF_OPEN, "dead 1"), "b 1"), "c 1")
    later = NOW + LEASE
    full = extend_trials(full, {"b 1", "c 1"}, later - 1)
    assert take_trial(full, BREAKER, later - 0.001, slot="d 1") is None

    gate = with_trial(full, "d 1", later)

    assert [trial.id for trial in gate.trials] == ["b 1", "c 1", "d 1"]
    for verdict in (GOOD, BAD):
        assert judged(gate, "dead 1", verdict, later) == (gate, [])


def test_a_trial_whose_lease_ran_out_is_too_old_to_judge_by_even_if_nobody_took_its_slot() -> None:
    gate = with_trial(HALF_OPEN)
    later = NOW + LEASE

    assert judged(gate, "a 1", BAD, later) == (gate, [])
    assert extend_trials(gate, {"a 1"}, later) == gate
    assert with_trial(gate, "a 1", later).trials == (Trial("a 1", later + LEASE),), "it is taken anew"


def test_a_trial_that_takes_long_keeps_its_slot_while_its_worker_lives() -> None:
    gate, now = with_trial(with_trial(HALF_OPEN, "a 1"), "b 1"), NOW
    for _ in range(20):
        now += LEASE / 3
        gate = extend_trials(gate, {"a 1"}, now)

    gate, changes = judged(gate, "a 1", GOOD, now)

    assert kinds(changes) == ["tried"]
    assert judged(gate, "b 1", GOOD, now) == (gate, []), "nobody kept the other"


def test_a_lease_is_extended_in_good_time_and_not_each_time() -> None:
    gate = with_trial(HALF_OPEN)

    assert extend_trials(gate, {"a 1"}, NOW + 1) == gate
    assert extend_trials(gate, {"a 1"}, NOW + 6).trials == (Trial("a 1", NOW + 16),)


@pytest.mark.clause("BRK-3")
def test_a_slot_that_no_call_has_is_free_even_if_the_clock_was_set_back_under_it() -> None:
    gate, earlier = with_trial(HALF_OPEN, "dead 1"), NOW - 40
    assert call_permission(gate, Breaker(trials=1), earlier) is CallPermission.TRIAL

    gate = take_trial(gate, Breaker(trials=1), earlier, slot="b 1") or HALF_OPEN

    assert gate.trials == (Trial("b 1", earlier + LEASE),)


def test_a_call_that_is_under_way_keeps_its_slot_when_the_clock_is_set_back() -> None:
    gate = extend_trials(with_trial(HALF_OPEN), {"a 1"}, NOW - 40)

    assert gate.trials == (Trial("a 1", NOW - 40 + LEASE),)


def test_asked_again_under_the_same_name_it_is_the_same_slot() -> None:
    gate = with_trial(HALF_OPEN)

    assert take_trial(gate, BREAKER, NOW + 1, slot="a 1") == gate


def test_other_workers_may_have_declared_fewer_trials() -> None:
    gate = with_trial(with_trial(HALF_OPEN, "a 1"), "b 1")

    assert call_permission(gate, Breaker(trials=1), NOW) is CallPermission.NONE


@pytest.mark.parametrize("gate", [PAUSED_FOR_A_HINT, BLOCKED])
def test_after_a_pause_or_a_block_one_trial_decides(gate: BreakerState) -> None:
    assert gate.open_period is not None
    until = gate.open_period.until

    trying = with_trial(gate, "a 1", until)
    opened, changes = judged(trying, "a 1", GOOD, until)

    assert take_trial(trying, BREAKER, until, slot="b 1") is None
    assert lets_through(opened)
    assert kinds(changes) == ["tried", "closed"]


@pytest.mark.parametrize(
    ("outcome", "state", "length"),
    [
        (BAD, "open", COOLDOWN),
        (DENIED, "blocked", 300.0),
        (EXHAUSTED, "blocked", 300.0),
    ],
)
@pytest.mark.parametrize("gate", [HALF_OPEN, PAUSED_FOR_A_HINT, BLOCKED])
def test_a_trial_that_fails_in_another_way_shuts_it_for_that(
    gate: BreakerState, outcome: CallOutcome, state: str, length: float
) -> None:
    assert gate.open_period is not None
    until = gate.open_period.until

    shut, changes = judged(with_trial(gate, now=until), "a 1", outcome, until)

    assert state_name(shut, until) == state
    assert seconds_to_next_release(shut, until) == length
    assert kinds(changes) == ["tried", "opened"]


@pytest.mark.parametrize(
    ("gate", "least"), [(HALF_OPEN, COOLDOWN), (PAUSED_FOR_A_HINT, SHORTEST_PAUSE), (BLOCKED, LONGEST_PAUSE)]
)
@pytest.mark.parametrize("wait", [None, 0.5, 60.0])
def test_a_trial_that_is_told_to_slow_down_only_moves_the_next_one(
    gate: BreakerState, least: float, wait: float | None
) -> None:
    assert gate.open_period is not None
    until = gate.open_period.until
    trial = CallReport(LIMITED, gate.generation, wait=wait, trial="a 1")

    shut, changes = apply_reports(with_trial(gate, now=until), BREAKER, [trial], until)

    assert shut.open_period is not None
    assert shut.open_period == gate.open_period._replace(until=until + max(least, wait or 0.0)), (
        "for the reason it had"
    )
    assert [change.again for change in changes] == [False, True], "nobody is called for that"


def test_a_request_to_slow_down_takes_nothing_away_of_what_is_known_of_failures() -> None:
    gate = told(BreakerState(), DENIED, DENIED, *[BAD] * 9)

    paused = told(gate, LIMITED)
    opened, _ = judged(with_trial(paused, now=NOW + 1), "a 1", GOOD, NOW + 1)

    assert (paused.seen, paused.denials) == (gate.seen, gate.denials)
    assert opened.seen == gate.seen
    assert not lets_through(told(opened, BAD, now=NOW + 1)), "the tenth"


def test_whatever_else_shuts_it_begins_a_new_window() -> None:
    gate = told(BreakerState(), DENIED, DENIED, *[BAD] * 9)

    assert [(shut.seen, shut.denials) for shut in (told(gate, BAD), told(gate, DENIED))] == [((), 0)] * 2


class Workers(RuleBasedStateMachine):
    """Any number of workers at one gate: they call, trial, sleep, die, and report late, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.now, self.numbers = BreakerState(), NOW, count(1)
        self.calls: list[CallReport] = []
        self.leases: dict[str, float] = {}

    @initialize(trials=st.integers(1, 4))
    def declare(self, trials: int) -> None:
        self.breaker = Breaker(window=6, minimum=3, trials=trials)

    @rule()
    def begin(self) -> None:
        match call_permission(self.gate, self.breaker, self.now, released=True):
            case CallPermission.FREE:
                self.calls.append(CallReport(GOOD, self.gate.generation))
            case CallPermission.TRIAL:
                slot = f"slot {next(self.numbers)}"
                self.gate = with_trial(self.gate, slot, self.now, self.breaker)
                self.leases[slot] = self.now + LEASE
                self.calls.append(CallReport(GOOD, self.gate.generation, trial=slot))
            case CallPermission.NONE:
                pass  # the job is held

    @precondition(lambda self: self.calls)
    @rule(choice=st.integers(0), outcome=st.sampled_from(CallOutcome), wait=st.none() | st.floats(0, 60))
    def end(self, choice: int, outcome: CallOutcome, wait: float | None) -> None:
        call = self.calls.pop(choice % len(self.calls))
        before = self.gate
        expired = call.trial is not None and self.leases.pop(call.trial) <= self.now

        self.gate, changes = apply_reports(
            before, self.breaker, [call._replace(outcome=outcome, wait=wait)], self.now
        )

        moved = [kind for kind in kinds(changes) if kind != "tried"]
        assert len(moved) == self.gate.generation - before.generation <= 1
        if expired or call.generation != before.generation:
            assert (self.gate, changes) == (before, [])
        if moved == ["closed"]:
            assert (outcome, call.trial is None) == (GOOD, False)

    @precondition(lambda self: self.leases)
    @rule(choice=st.integers(0))
    def keep(self, choice: int) -> None:
        slot = sorted(self.leases)[choice % len(self.leases)]
        self.gate = extend_trials(self.gate, {slot}, self.now)
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
        self.gate = with_probe(self.gate)

    @invariant()
    def no_more_trials_are_alive_than_are_allowed(self) -> None:
        under_way = [call for call in self.calls if call.generation == self.gate.generation and call.trial]
        live_trials = [call for call in under_way if self.leases[str(call.trial)] > self.now]
        assert len(live_trials) <= self.breaker.trials

    @invariant()
    def a_gate_never_stays_shut_for_longer_than_the_longest_pause(self) -> None:
        move = seconds_to_next_release(self.gate, self.now)
        assert lets_through(self.gate) or (move is not None and move <= LONGEST_PAUSE)

    @invariant()
    def trials_are_there_only_where_they_are_needed(self) -> None:
        assert not (lets_through(self.gate) and (self.gate.trials or self.gate.probes))


Workers.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAnyNumberOfWorkersAtOneGate = pytest.mark.clause("BRK-3")(Workers.TestCase)


@pytest.mark.clause("BRK-1")
@pytest.mark.clause("RET-4")
@pytest.mark.parametrize(
    ("wait", "length"),
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
    wait: float | None, length: float
) -> None:
    gate, changes = apply_reports(BreakerState(), BREAKER, [CallReport(LIMITED, 1, wait=wait)], NOW)

    assert changes == [BreakerChange("opened", OpenCause.LIMITED, length)]
    assert call_permission(gate, BREAKER, NOW + length - 0.001) is CallPermission.NONE
    assert call_permission(gate, BREAKER, NOW + length) is CallPermission.TRIAL
    assert state_name(gate, NOW + length) == "limited"


def test_a_spent_quota_blocks_the_provider_at_once() -> None:
    gate = told(BreakerState(), EXHAUSTED)

    assert state_name(gate, NOW) == "blocked"
    assert seconds_to_next_release(gate, NOW) == LONGEST_PAUSE


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ([DENIED, DENIED], "closed"),
        ([DENIED, DENIED, DENIED], "blocked"),
        ([DENIED, DENIED, GOOD, DENIED, DENIED], "closed"),
        ([DENIED, DENIED, GOOD, DENIED, DENIED, DENIED], "blocked"),
        ([DENIED, IGNORED, DENIED, BAD, DENIED], "blocked"),
    ],
)
def test_refused_credentials_block_it_after_three_without_a_success_between(
    outcomes: list[CallOutcome], state: str
) -> None:
    assert state_name(told(BreakerState(), *outcomes), NOW) == state


@pytest.mark.clause("BRK-5")
def test_held_jobs_go_out_in_steps_that_double_every_two_seconds() -> None:
    gate = told(with_trial(BLOCKED, now=NOW + 300), now=NOW)
    gate, _ = judged(gate, "a 1", GOOD, NOW + 300)

    sizes = []
    for tenth in range(61):
        gate, size = release(gate, BREAKER, NOW + 300 + tenth / 10)
        sizes += [(tenth / 10, size)] * bool(size)

    assert sizes == [(0.0, 3), (2.0, 6), (4.0, 12), (6.0, 24)]


@pytest.mark.clause("BRK-5")
@given(st.lists(st.floats(0, 3_600), min_size=1, max_size=12))
def test_however_late_somebody_looks_one_step_is_taken_at_a_time(pauses: list[float]) -> None:
    gate, now, taken_at = BreakerState(ramp=Ramp(NOW, 3)), NOW, -1e9
    steps: list[int] = []
    for pause in pauses:
        now += pause
        gate, size = release(gate, BREAKER, now)
        if size:
            assert now - taken_at >= 2
            steps, taken_at = [*steps, size], now

    assert steps == [3 * 2**number for number in range(len(steps))]


@pytest.mark.clause("BRK-5")
def test_whoever_comes_new_stands_in_line_behind_those_who_are_held() -> None:
    recovering = BreakerState(ramp=Ramp(NOW, 3))

    assert call_permission(recovering, BREAKER, NOW) is CallPermission.NONE
    assert call_permission(recovering, BREAKER, NOW, released=True) is CallPermission.FREE
    assert call_permission(all_released(recovering), BREAKER, NOW) is CallPermission.FREE
    assert (state_name(recovering, NOW), state_name(all_released(recovering), NOW)) == (
        "recovering",
        "closed",
    )


def test_a_job_held_just_as_the_release_ended_begins_another() -> None:
    gate, size = release(BreakerState(), BREAKER, NOW)

    assert (size, gate.ramp) == (3, Ramp(NOW + 2, 6))


@pytest.mark.clause("BRK-5")
def test_towards_a_shut_gate_only_those_go_who_may_be_trials() -> None:
    trying = with_trial(HALF_OPEN)

    assert [release(gate, BREAKER, NOW)[1] for gate in (OPEN, HALF_OPEN, trying, BLOCKED)] == [0, 3, 2, 0]
    assert release(BLOCKED, BREAKER, NOW + LONGEST_PAUSE)[1] == 1


def test_towards_a_shut_gate_too_one_step_is_taken_at_a_time() -> None:
    once, size = release(HALF_OPEN, BREAKER, NOW)
    assert size == 3

    assert release(once, BREAKER, NOW + 1.9) == (once, 0)
    assert seconds_to_next_release(once, NOW) == 2.0
    assert release(once, BREAKER, NOW + 2)[1] == 3, "nobody came: others may try"


def test_jobs_that_can_go_to_a_backup_go_in_growing_steps_past_a_gate_that_is_shut() -> None:
    gate, first = release(OPEN, BREAKER, NOW, elsewhere=True)
    gate, too_early = release(gate, BREAKER, NOW + 1, elsewhere=True)
    gate, second = release(gate, BREAKER, NOW + 2, elsewhere=True)

    assert (first, too_early, second) == (3, 0, 6)
    assert call_permission(gate, BREAKER, NOW + 2, released=True) is CallPermission.NONE, "not through it"


def test_a_release_that_never_ends_stays_within_what_a_store_can_count() -> None:
    gate, now, size = BreakerState(), NOW, 0
    for _ in range(100):
        gate, size = release(gate, BREAKER, now)
        now += 2

    assert size == LARGEST_RELEASE


@pytest.mark.parametrize(
    "gate", [BreakerState(ramp=Ramp(NOW + 3_600, 6)), replace(HALF_OPEN, ramp=Ramp(NOW + 3_600, 3))]
)
def test_a_step_that_is_further_off_than_steps_are_was_noted_by_a_clock_that_went_back(
    gate: BreakerState,
) -> None:
    after, size = release(gate, BREAKER, NOW)

    assert size > 0
    assert after.ramp is not None
    assert after.ramp.at == NOW + 2


def test_a_gate_that_was_shut_later_than_now_was_shut_by_a_clock_that_went_back() -> None:
    hour_ago = NOW - 3_600

    assert call_permission(OPEN, BREAKER, hour_ago) is CallPermission.TRIAL
    assert seconds_to_next_release(OPEN, hour_ago) == 0.0
    assert call_permission(OPEN, BREAKER, NOW) is CallPermission.NONE, (
        "the moment it was shut is none of those"
    )


def test_a_trial_that_was_lent_its_slot_for_too_long_has_it_from_a_clock_that_went_back() -> None:
    lent = replace(HALF_OPEN, trials=tuple(Trial(f"a {number}", NOW + LEASE + 1) for number in range(3)))

    assert call_permission(lent, BREAKER, NOW) is CallPermission.TRIAL
    assert judged(lent, "a 1", BAD, NOW) == (lent, [])
    assert call_permission(lent, BREAKER, NOW + 1) is CallPermission.NONE, "so long it can be"


def test_opening_again_ends_the_ramp() -> None:
    recovering = BreakerState(ramp=Ramp(NOW, 24))

    assert told(recovering, *[BAD] * 10).ramp is None


def test_when_the_next_held_jobs_can_go_follows_from_the_gate() -> None:
    moves = [
        (BreakerState(), None),
        (BreakerState(ramp=Ramp(NOW + 2, 6)), 2.0),
        (BreakerState(ramp=Ramp(NOW - 5, 6)), 0.0),
        (OPEN, COOLDOWN),
        (HALF_OPEN, 0.0),
        (with_probe(OPEN), 0.0),
        (under(OverrideKind.PAUSE, OPEN), None),
        (with_probe(under(OverrideKind.PAUSE)), 0.0),
        (replace(with_probe(OPEN), ramp=Ramp(NOW + 2, 3)), 2.0),
        (replace(OPEN, ramp=Ramp(NOW + 2, 3)), COOLDOWN),
        (under(OverrideKind.OBSERVE, OPEN), 0.0),
    ]

    assert [seconds_to_next_release(gate, NOW) for gate, _ in moves] == [move for _, move in moves]


@pytest.mark.parametrize("beneath", [BreakerState(), OPEN, BLOCKED, PAUSED_FOR_A_HINT])
@pytest.mark.parametrize(
    ("command", "expected", "state"),
    [
        (OverrideKind.OPEN, CallPermission.NONE, "forced open"),
        (OverrideKind.CLOSED, CallPermission.FREE, "forced closed"),
        (OverrideKind.OBSERVE, CallPermission.FREE, "observed"),
        (OverrideKind.PAUSE, CallPermission.NONE, "paused"),
    ],
)
def test_an_order_stands_whatever_the_breaker_says(
    beneath: BreakerState, command: OverrideKind, expected: CallPermission, state: str
) -> None:
    gate = under(command, beneath)

    assert call_permission(gate, BREAKER, NOW + 1e6) is expected
    assert state_name(gate, NOW) == state
    assert release(gate, BREAKER, NOW)[1] == (3 if expected is CallPermission.FREE else 0)


def test_only_a_gate_without_orders_or_a_release_is_clear() -> None:
    others = [OPEN, BreakerState(ramp=Ramp(NOW, 3)), *(under(command) for command in OverrideKind)]

    assert BreakerState().is_closed
    assert not any(gate.is_closed for gate in others)


@pytest.mark.parametrize("command", [OverrideKind.CLOSED, OverrideKind.OBSERVE])
def test_an_order_that_lets_everybody_through_holds_nobody_when_it_is_lifted(command: OverrideKind) -> None:
    lifted = overridden(under(command), None, NOW + 1)

    assert call_permission(lifted, BREAKER, NOW + 1) is CallPermission.FREE
    assert state_name(lifted, NOW + 1) == "closed"


@pytest.mark.parametrize("command", [OverrideKind.OPEN, OverrideKind.PAUSE])
def test_an_order_that_let_nobody_through_is_lifted_step_by_step(command: OverrideKind) -> None:
    lifted = overridden(under(command), None, NOW + 1)

    assert lifted.ramp == Ramp(NOW + 1, 3)


def test_an_order_leaves_a_release_under_way_as_it_is() -> None:
    recovering = BreakerState(ramp=Ramp(NOW + 1, 24))

    assert under(OverrideKind.OBSERVE, recovering).ramp == recovering.ramp
    assert under(OverrideKind.PAUSE, recovering).ramp is None


def test_calls_under_way_say_nothing_about_what_follows_an_order() -> None:
    gate = under(OverrideKind.OBSERVE)

    assert apply_reports(gate, BREAKER, [CallReport(EXHAUSTED, gate.generation - 1)], NOW) == (gate, [])


def test_whoever_closes_it_says_that_the_provider_is_well() -> None:
    suspected = replace(told(BreakerState(), *[BAD] * 9, DENIED, DENIED), open_period=OPEN.open_period)

    gate = overridden(under(OverrideKind.CLOSED, suspected), None, NOW)

    assert (gate.open_period, gate.seen, gate.denials) == (None, (), 0)
    assert state_name(gate, NOW) == "recovering", "those who were held go out step by step"


def test_while_it_is_forced_closed_no_outcome_counts() -> None:
    gate = under(OverrideKind.CLOSED)

    assert told(gate, *[BAD] * 20, EXHAUSTED) == gate


def test_an_order_that_is_lifted_leaves_the_breaker_as_it_was() -> None:
    gate = overridden(under(OverrideKind.PAUSE, OPEN), None, NOW + 1)

    assert (gate.open_period, gate.ramp, gate.override) == (OPEN.open_period, None, None)
    assert gate.generation == OPEN.generation + 2


def test_under_observation_the_breaker_opens_and_closes_on_paper_while_every_call_is_made() -> None:
    gate, opened = apply_reports(under(OverrideKind.OBSERVE), BREAKER, [CallReport(BAD, 2)] * 10, NOW)
    before_the_cooldown = told(gate, GOOD, GOOD, GOOD, now=NOW + 1)
    closed = told(gate, GOOD, GOOD, GOOD, now=NOW + COOLDOWN)

    assert kinds(opened) == ["opened"]
    assert before_the_cooldown == gate
    assert (gate.open_period is None, closed.open_period is None) == (False, True)
    assert {call_permission(one, BREAKER, NOW) for one in (gate, closed)} == {CallPermission.FREE}


@pytest.mark.parametrize(
    "beneath", [OPEN, BLOCKED, under(OverrideKind.OPEN), under(OverrideKind.PAUSE, OPEN)]
)
def test_a_probe_lets_one_job_through_a_gate_that_is_shut(beneath: BreakerState) -> None:
    gate = with_probe(beneath)

    assert release(gate, BREAKER, NOW + 1)[1] == 1
    trying = with_trial(gate, "a 1", NOW + 1)

    assert call_permission(trying, BREAKER, NOW + 1) is CallPermission.NONE
    assert release(trying, BREAKER, NOW + 1) == (trying, 0)


def test_a_probe_that_succeeds_lets_the_other_trials_begin() -> None:
    gate, _ = judged(with_trial(with_probe(OPEN)), "a 1", GOOD)

    assert state_name(gate, NOW) == "half-open"
    assert release(gate, BREAKER, NOW)[1] == 2


def test_a_probe_that_succeeds_opens_a_blocked_provider_and_those_left_over_are_forgotten() -> None:
    gate, changes = judged(with_trial(with_probe(with_probe(BLOCKED))), "a 1", GOOD)

    assert kinds(changes) == ["tried", "closed"]
    assert (gate.probes, call_permission(gate, BREAKER, NOW, released=True)) == (0, CallPermission.FREE)


def test_an_order_stands_whatever_a_probe_finds_out() -> None:
    trying = with_trial(with_probe(under(OverrideKind.OPEN)))

    assert [state_name(judged(trying, "a 1", outcome)[0], NOW) for outcome in CallOutcome] == [
        "forced open"
    ] * 6
    good, bad = (judged(trying, "a 1", outcome)[0] for outcome in (GOOD, BAD))
    assert state_name(overridden(good, None, NOW), NOW) == "recovering"
    assert state_name(overridden(bad, None, NOW), NOW) == "open"


@pytest.mark.parametrize(
    "gate",
    [
        BreakerState(),
        BreakerState(ramp=Ramp(NOW, 3)),
        under(OverrideKind.CLOSED),
        under(OverrideKind.OBSERVE),
    ],
)
def test_where_calls_go_through_anyway_there_is_nothing_to_probe(gate: BreakerState) -> None:
    assert with_probe(gate) == gate


@pytest.mark.clause("BRK-6")
@pytest.mark.parametrize(
    ("gate", "wanted"),
    [
        (BreakerState(), False),
        (BreakerState(ramp=Ramp(NOW, 3)), False),
        (OPEN, True),
        (HALF_OPEN, True),
        (BLOCKED, True),
        (PAUSED_FOR_A_HINT, False),
        (under(OverrideKind.OPEN), True),
        (under(OverrideKind.PAUSE, OPEN), False),
        (under(OverrideKind.OBSERVE, OPEN), False),
        (under(OverrideKind.CLOSED, OPEN), False),
    ],
)
def test_a_backup_takes_over_from_a_provider_that_is_broken_and_not_from_one_that_asks_for_patience(
    gate: BreakerState, wanted: bool
) -> None:
    assert calls_for_backup(gate) is wanted


def test_every_state_has_a_name() -> None:
    shut = [OPEN, HALF_OPEN, PAUSED_FOR_A_HINT, BLOCKED]
    gates = [
        BreakerState(),
        BreakerState(ramp=Ramp(NOW, 3)),
        *shut,
        *(under(command) for command in OverrideKind),
    ]

    assert [state_name(gate, NOW) for gate in gates] == list(STATES)


def test_the_failure_rate_is_that_of_the_window_and_while_it_is_shut_that_which_shut_it() -> None:
    assert failure_rate(BreakerState()) == 0.0
    assert failure_rate(told(BreakerState(), BAD, GOOD, GOOD, GOOD)) == 0.25
    assert failures(OPEN) == (11, 20)
    again, changes = judged(with_trial(HALF_OPEN), "a 1", BAD)
    assert failures(again) == (11, 20)
    stays = BreakerChange("opened", OpenCause.FAILURES, COOLDOWN, again=True)
    assert changes[-1] == stays, "the calls were told before"


@pytest.mark.parametrize(
    ("gate", "seconds"),
    [
        (BreakerState(), 0),
        (OPEN, 60),
        (HALF_OPEN, 90),
        (under(OverrideKind.OBSERVE, OPEN), 0),
        (under(OverrideKind.PAUSE), 60),
        (under(OverrideKind.PAUSE, HALF_OPEN), 90),
    ],
)
def test_how_long_calls_are_turned_away_counts_from_the_first_reason(
    gate: BreakerState, seconds: float
) -> None:
    assert open_seconds(gate, NOW + 60) == seconds


@pytest.mark.parametrize(
    ("change", "news"),
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
def test_a_change_is_told_in_plain_words_and_figures(change: BreakerChange, news: dict[str, object]) -> None:
    assert event_details(change) == news


def test_a_window_full_of_good_calls_that_stays_so_is_not_worth_a_write() -> None:
    calm = told(BreakerState(), *[GOOD] * 20)

    assert needs_no_write(calm, told(calm, GOOD, now=NOW + 59), BREAKER, NOW + 59)
    assert not needs_no_write(calm, told(calm, GOOD, now=NOW + 60), BREAKER, NOW + 60), (
        "it would grow too old"
    )
    assert not needs_no_write(calm, told(calm, BAD), BREAKER, NOW)
    assert not needs_no_write(calm, told(calm, DENIED), BREAKER, NOW)
    assert not needs_no_write(told(BreakerState(), *[GOOD] * 19), calm, BREAKER, NOW), "it is not full yet"


def test_a_provider_is_left_alone_for_longer_than_five_minutes_only_if_it_allows_that() -> None:
    asked = CallReport(LIMITED, BreakerState().generation, wait=7_200.0)

    def until(breaker: Breaker) -> float:
        gate, _ = apply_reports(BreakerState(), breaker, [asked], NOW)
        assert gate.open_period is not None
        return gate.open_period.until - NOW

    assert until(Breaker()) == LONGEST_PAUSE
    assert until(Breaker(max_wait="1h")) == 3_600
    assert until(Breaker(max_wait="3h")) == 7_200


@pytest.mark.parametrize("max_wait", ["299s", "366d", "soon"])
def test_a_longest_wait_that_cannot_be_is_refused(max_wait: str) -> None:
    with pytest.raises(ValueError, match=r"max_wait= raises the limit of 300 s|Not a duration"):
        Breaker(max_wait=max_wait)
