"""What all workers of a store share about a provider."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.providers.breaker_state import (
    BreakerState,
    OpenCause,
    OpenPeriod,
    Ramp,
    RecordedCall,
    Trial,
    overridden,
    state_name,
    with_probe,
)
from holdfast.core.providers.holder import Holder
from holdfast.core.providers.limits import (
    LEASE,
    LIMIT_RELEASE_EVERY,
    Grant,
    LimitRequest,
    Limits,
    Quota,
    Rate,
    Share,
)
from holdfast.core.providers.override import Override, OverrideKind
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.providers.provider_state import (
    MAX_KEYS_PER_RELEASE,
    MAX_SAVED_RETRIES,
    ORPHANED_AFTER,
    ProviderState,
    dump_quota,
)

NOW = 1_000.0


LLM = ProviderSpec("llm")


OPEN = BreakerState(open_period=OpenPeriod(OpenCause.FAILURES, NOW, NOW + 30, failed=11, seen=20))


BREAKER, LIMIT, RETRIES = Holder("llm"), Holder("llm", ""), Holder("llm", for_retries=True)


NUMBERS = st.integers(0, 2**40)


TIMES = st.floats(0, 1e10)


WORDS = st.text(max_size=8)


OPEN_PERIODS = st.builds(OpenPeriod, st.sampled_from(OpenCause), TIMES, TIMES, NUMBERS, NUMBERS, NUMBERS)


BREAKER_STATES = st.builds(
    BreakerState,
    generation=NUMBERS,
    seen=st.lists(st.builds(RecordedCall, TIMES, st.booleans(), st.booleans()), max_size=3).map(tuple),
    open_period=st.none() | OPEN_PERIODS,
    trials=st.lists(st.builds(Trial, WORDS, TIMES), max_size=3).map(tuple),
    denials=NUMBERS,
    ramp=st.none() | st.builds(Ramp, TIMES, NUMBERS),
    override=st.none() | st.builds(Override, st.sampled_from(OverrideKind), WORDS, WORDS, TIMES),
    probes=NUMBERS,
)


QUOTAS = st.builds(
    Quota, TIMES, TIMES, st.dictionaries(WORDS, st.builds(Share, NUMBERS, NUMBERS, TIMES), max_size=3)
)


STATES = st.builds(
    ProviderState,
    BREAKER_STATES,
    QUOTAS,
    inline=st.dictionaries(WORDS, QUOTAS, max_size=3),
    retries=TIMES,
    retries_at=TIMES,
    turn=NUMBERS,
)


def under(kind: OverrideKind, reason: str = "") -> BreakerState:
    return overridden(BreakerState(), Override(kind, "alice", reason, NOW), NOW)


@pytest.mark.clause("BRK-4")
@settings(max_examples=60)
@given(STATES)
def test_what_was_written_down_is_read_again_as_it_was(state: ProviderState) -> None:
    assert ProviderState.load(state.dump()) == state


def test_of_what_is_missing_the_beginning_is_assumed() -> None:
    assert ProviderState.load("{}") == ProviderState()
    assert ProviderState.load('{"gate":{},"quota":[],"keys":{}}') == ProviderState()


def test_what_a_newer_version_has_added_is_passed_over() -> None:
    breaker = BreakerState(
        2,
        (RecordedCall(NOW, failed=True, slow=False),),
        OPEN.open_period,
        (Trial("a 1", NOW),),
        1,
        Ramp(NOW, 3),
    )
    breaker = replace(breaker, override=Override(OverrideKind.OPEN, "alice", "", NOW))
    state = ProviderState(breaker, Quota(NOW, NOW, {"a": Share(1, 2, NOW)}))
    stored = json.loads(state.dump())

    stored["quota"] = [*stored["quota"], "new"]
    stored["quota"][2]["a"].append("new")
    for name in ("shut", "ramp", "order"):
        stored["gate"][name].append("new")
    for name in ("seen", "trials"):
        stored["gate"][name][0].append("new")
    stored["new"] = stored["gate"]["new"] = {}

    assert ProviderState.load(json.dumps(stored)) == state


def test_a_cause_or_an_override_that_is_not_known_here_still_keeps_calls_back() -> None:
    opened = ProviderState.load('{"gate":{"shut":["eclipse",1000,1030]}}').breaker
    overridden_state = ProviderState.load('{"gate":{"order":["stand still","alice","",1000]}}').breaker

    assert (state_name(opened, NOW), state_name(overridden_state, NOW)) == ("open", "paused")


def test_without_limits_nothing_is_given_and_nothing_written() -> None:
    state = ProviderState()

    assert state.grant(LLM, "a", LimitRequest({}, {"": 9}), NOW) == (state, [])


def test_what_is_granted_is_recorded_in_the_state() -> None:
    spec = replace(LLM, limits=Limits(concurrency=3, rate=Rate.of("2/s")))

    state, grants = ProviderState().grant(spec, "a", LimitRequest({}, {"": 2}), NOW)

    assert grants == [Grant("", NOW), Grant("", NOW + 0.5)]
    assert state == ProviderState(quota=Quota(next_at=NOW + 1, shares={"a": Share(2, 2, NOW + LEASE)}))


def test_keys_that_are_idle_are_forgotten_with_the_next_exchange() -> None:
    spec = replace(LLM, key_limits=Limits(rate=Rate.of("10/s")))
    state, _ = ProviderState().grant(
        spec, "a", LimitRequest({}, {f"{number}": 1 for number in range(50)}), NOW
    )
    assert len(state.keys) == 50

    state, _ = state.grant(spec, "a", LimitRequest({}, {"new": 1}), NOW + 1)

    assert list(state.keys) == ["new"]


def test_what_is_given_out_of_keys_does_not_stand_in_the_providers_row() -> None:
    spec = replace(LLM, key_limits=Limits(rate=Rate.of("10/s")))
    state, _ = ProviderState().grant(spec, "a", LimitRequest({}, {"ann": 1}), NOW)

    assert state.keys
    assert ProviderState.load(state.dump()) == state.without_keys() == ProviderState()


@given(QUOTAS)
def test_what_was_written_of_a_key_is_read_again_as_it_was(quota: Quota) -> None:
    state = ProviderState().with_keys(["ann", "bob"], {"ann": dump_quota(quota)})

    assert state.keys == ({} if quota == Quota() else {"ann": quota})


def test_only_keys_that_have_changed_are_written_and_a_share_that_goes_back_is_written_off() -> None:
    spec = replace(LLM, key_limits=Limits(concurrency=2))
    before = ProviderState(
        keys={
            "back": Quota(shares={"a": Share(1, 1, NOW + LEASE)}),
            "idle": Quota(next_at=NOW - 9),
            "same": Quota(shares={"b": Share(1, 1, NOW + LEASE)}),
        }
    )

    after, _ = before.grant(spec, "a", LimitRequest({}, {"new": 1}), NOW)

    assert set(after.keys) == {"same", "new"}
    assert after.changed_keys(before, NOW) == {"new": after.keys["new"], "back": Quota()}


def test_what_an_older_worker_has_taken_of_a_key_counts_and_stays_in_the_providers_row() -> None:
    spec = replace(LLM, key_limits=Limits(concurrency=2, rate=Rate.of("1/s")))
    old = Quota(next_at=NOW, shares={"old": Share(2, 2, NOW + LEASE)})
    gone = Quota(next_at=NOW - 9)
    stored = ProviderState(inline={"ann": old, "gone": gone})

    state, grants = stored.with_keys(["ann"], {}).grant(spec, "new", LimitRequest({}, {"ann": 1}), NOW)

    assert grants == []
    assert state.inline == {"ann": old}


def test_of_very_many_keys_some_are_released_at_a_time_and_then_the_next() -> None:
    spec = replace(LLM, key_limits=Limits(concurrency=1))
    holders = [
        BREAKER,
        *(Holder("llm", f"{number:04}") for number in range(2 * MAX_KEYS_PER_RELEASE + 50)),
    ]
    state, released = ProviderState(), set[Holder]()

    for step in range(4):
        keys = state.keys_to_release(spec, holders)
        state, counts = state.plan_release("llm", spec, holders, NOW + step, limit=1_000)
        assert set(keys) == {holder.key for holder in counts if holder.key}
        assert len(keys) == MAX_KEYS_PER_RELEASE
        released.update(holder for holder, jobs in counts.items() if jobs)

    assert released >= set(holders) - {BREAKER}


def test_keys_without_limits_of_their_own_need_not_be_read_to_release_jobs() -> None:
    assert ProviderState().keys_to_release(None, [LIMIT]) == []
    assert ProviderState().keys_to_release(LLM, [LIMIT]) == []
    assert ProviderState().keys_to_release(replace(LLM, key_limits=Limits(concurrency=1)), []) == []


def test_without_a_budget_every_call_may_be_a_retry() -> None:
    state = ProviderState(retries=0)

    assert state.grant_retries(LLM, firsts=0, requested=100, now=NOW) == (state, 100)


def test_with_a_budget_retries_are_saved_up_by_first_calls_and_by_time() -> None:
    spec = replace(LLM, retry_budget=0.2)
    state, count = ProviderState(retries_at=NOW).grant_retries(spec, firsts=0, requested=100, now=NOW)
    assert count == MAX_SAVED_RETRIES

    state, by_firsts = state.grant_retries(spec, firsts=20, requested=100, now=NOW)
    state, by_time = state.grant_retries(spec, firsts=0, requested=100, now=NOW + 3)
    state, by_an_age = state.grant_retries(spec, firsts=10_000, requested=100, now=NOW + 10_000)

    assert (by_firsts, by_time, by_an_age) == (4, 3, MAX_SAVED_RETRIES)


def test_parts_of_a_retry_are_kept_until_they_make_one() -> None:
    spec = replace(LLM, retry_budget=0.25)
    state, counts = ProviderState(retries=0, retries_at=NOW), []
    for _ in range(8):
        state, count = state.grant_retries(spec, firsts=1, requested=9, now=NOW)
        counts.append(count)

    assert counts == [0, 0, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(("firsts", "now"), [(5, NOW), (5, NOW + 60), (0, NOW + 60)])
def test_a_budget_that_is_full_is_not_written_again(firsts: int, now: float) -> None:
    state = ProviderState(retries_at=NOW)

    assert state.grant_retries(replace(LLM, retry_budget=0.2), firsts=firsts, requested=0, now=now) == (
        state,
        0,
    )


def test_a_clock_that_was_set_back_takes_no_retries_away() -> None:
    state = ProviderState(retries=2, retries_at=NOW)

    assert state.grant_retries(replace(LLM, retry_budget=0), firsts=0, requested=9, now=NOW - 60)[1] == 2


@pytest.mark.clause("BRK-5")
def test_jobs_held_for_the_breaker_are_released_as_it_says_and_the_state_records_it() -> None:
    state = ProviderState(BreakerState(ramp=Ramp(NOW, 3)))

    state, counts = state.plan_release("llm", LLM, [BREAKER], NOW, limit=1_000)

    assert counts == {BREAKER: 3}
    assert state.plan_release("llm", LLM, [BREAKER], NOW + 1, limit=1_000) == (state, {BREAKER: 0})


@pytest.mark.clause("BRK-2")
@pytest.mark.parametrize(
    "breaker",
    [
        OPEN,
        with_probe(OPEN),
        replace(OPEN, open_period=OpenPeriod(OpenCause.LIMITED, NOW, NOW + 8)),
        under(OverrideKind.PAUSE),
        under(OverrideKind.OPEN),
    ],
)
def test_jobs_that_wait_for_a_limit_stay_while_the_breaker_is_open(breaker: BreakerState) -> None:
    spec = replace(LLM, limits=Limits(concurrency=8), retry_budget=0.2)

    for now in (NOW, NOW + 3_600):
        _, counts = ProviderState(breaker).plan_release(
            "llm", spec, [BREAKER, LIMIT, RETRIES], now, limit=1_000
        )
        assert list(counts) == [BREAKER]


@pytest.mark.parametrize(
    ("breaker", "trials"),
    [(OPEN, 0), (with_probe(OPEN), 1), (under(OverrideKind.PAUSE), 0), (under(OverrideKind.OPEN), 0)],
)
def test_where_no_other_job_is_held_jobs_that_wait_for_a_limit_are_the_trials(
    breaker: BreakerState, trials: int
) -> None:
    state, spec = ProviderState(breaker), replace(LLM, limits=Limits(concurrency=8))

    assert state.plan_release("llm", spec, [LIMIT, RETRIES], NOW, limit=1_000)[1] == {LIMIT: trials}

    its_time = NOW + 3_600
    due = 3 if breaker.override is None else trials
    assert state.plan_release("llm", spec, [LIMIT, RETRIES], its_time, limit=1_000)[1] == {LIMIT: due}


@pytest.mark.parametrize(
    "breaker",
    [
        BreakerState(),
        BreakerState(ramp=Ramp(NOW, 3)),
        under(OverrideKind.CLOSED),
        under(OverrideKind.OBSERVE),
    ],
)
def test_jobs_that_wait_for_a_limit_go_where_calls_go_through(breaker: BreakerState) -> None:
    spec = replace(LLM, limits=Limits(concurrency=8))

    assert ProviderState(breaker).plan_release("llm", spec, [LIMIT], NOW, limit=1_000)[1] == {LIMIT: 16}


def test_jobs_that_wait_for_a_limit_go_past_an_open_breaker_to_a_backup() -> None:
    spec = replace(LLM, limits=Limits(concurrency=8))

    _, counts = ProviderState(OPEN).plan_release(
        "llm", spec, [BREAKER, LIMIT], NOW, limit=1_000, to_backup=True
    )

    assert counts == {BREAKER: 3, LIMIT: 16}


def test_jobs_that_wait_for_retries_go_as_there_are_retries_and_not_again_and_again() -> None:
    spec = replace(LLM, retry_budget=0.2)
    state = ProviderState(retries=2, retries_at=NOW)

    state, first = state.plan_release("llm", spec, [RETRIES], NOW, limit=1_000)
    again, second = state.plan_release("llm", spec, [RETRIES], NOW + LIMIT_RELEASE_EVERY / 2, limit=1_000)

    assert (first, second) == ({RETRIES: 2}, {RETRIES: 0})
    assert again == state
    assert state.plan_release("llm", spec, [RETRIES], NOW + LIMIT_RELEASE_EVERY, limit=1_000)[1] == {
        RETRIES: 2
    }
    without_retries = ProviderState(retries=0, retries_at=NOW)
    assert without_retries.plan_release("llm", spec, [RETRIES], NOW, limit=1_000) == (
        without_retries,
        {RETRIES: 0},
    )


@pytest.mark.parametrize("every", [0.25, 0.5, 0.75, 1.0])
def test_keys_take_turns_in_being_released_however_often_a_worker_looks(every: float) -> None:
    spec = replace(LLM, limits=Limits(rate=Rate.of("1/min")))
    holders = [Holder("llm", key) for key in "abc"]
    state, released = ProviderState(), Counter[Holder]()
    for number in range(30):
        state, counts = state.plan_release("llm", spec, holders, NOW + number * every, limit=1_000)
        released.update(counts)

    assert released == dict.fromkeys(holders, 10)


@given(st.integers(1, 50), st.integers(1, 30), st.integers(0, 40))
def test_no_more_jobs_are_released_of_all_keys_than_the_provider_has_room_for(
    concurrency: int, keys: int, turn: int
) -> None:
    spec = replace(LLM, limits=Limits(concurrency=concurrency))
    holders = [Holder("llm", f"{key}") for key in range(keys)]

    _, counts = ProviderState(turn=turn).plan_release("llm", spec, holders, NOW, limit=1_000)

    assert sum(counts.values()) == 2 * concurrency
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_key_at_its_own_limit_leaves_its_part_to_the_others() -> None:
    spec = replace(LLM, limits=Limits(concurrency=5), key_limits=Limits(concurrency=2))
    busy = Quota(shares={"a": Share(2, 4, NOW + LEASE)})
    holders = [Holder("llm", key) for key in ("busy", "x", "y", "z")]

    state, counts = ProviderState(keys={"busy": busy}).plan_release("llm", spec, holders, NOW, limit=1_000)

    assert list(counts.values()) == [0, 4, 3, 3]
    assert state.keys["busy"] == busy


def test_while_no_job_may_go_nothing_is_written() -> None:
    spec = replace(LLM, limits=Limits(rate=Rate.of("1/min")))
    state = ProviderState(quota=Quota(next_at=NOW + 30))

    assert state.plan_release("llm", spec, [LIMIT], NOW, limit=1_000) == (state, {LIMIT: 0})


def test_fewer_moments_than_keys_leave_the_last_keys_without() -> None:
    spec = replace(LLM, limits=Limits(rate=Rate.of("1/min")), key_limits=Limits(concurrency=2))
    holders = [Holder("llm", key) for key in "abc"]

    state, counts = ProviderState().plan_release("llm", spec, holders, NOW, limit=1_000)

    assert list(counts.values()) == [1, 0, 0]
    assert list(state.keys) == ["a"], "nothing is recorded of those that stay"


def test_the_jobs_of_a_provider_that_is_not_declared_here_are_released_slowly() -> None:
    _, for_the_breaker = ProviderState(OPEN).plan_release("llm", None, [BREAKER], NOW + 30, limit=1_000)
    _, for_a_limit = ProviderState().plan_release("llm", None, [LIMIT], NOW, limit=1_000)

    assert (for_the_breaker, for_a_limit) == ({BREAKER: 3}, {LIMIT: 2})


def test_a_worker_that_does_not_know_the_limits_releases_no_job_while_one_does_that_knows_them() -> None:
    spec = replace(LLM, limits=Limits(rate=Rate.of("50/s")))
    state, _ = ProviderState().plan_release("llm", spec, [LIMIT], NOW, limit=1_000)

    soon, late = NOW + LIMIT_RELEASE_EVERY, NOW + LIMIT_RELEASE_EVERY + ORPHANED_AFTER

    assert state.plan_release("llm", None, [LIMIT], late - 0.001, limit=1_000) == (state, {LIMIT: 0})
    assert state.plan_release("llm", spec, [LIMIT], soon, limit=1_000)[1] == {LIMIT: 51}
    assert state.plan_release("llm", None, [LIMIT], late, limit=1_000)[1] == {LIMIT: 2}, (
        "no worker seems to know the limits"
    )
