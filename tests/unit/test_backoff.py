"""How long a failed attempt waits for the next."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.durations import duration
from holdfast.core.failures.backoff import CEILING, Backoff, RetryPolicy
from holdfast.core.failures.failure import ErrorClass, Failure

ATTEMPTS = st.integers(min_value=1, max_value=10_000)
ROLLS = st.floats(min_value=0, max_value=1)
SHAPES = st.sampled_from(
    [
        Backoff.exponential(),
        Backoff.exponential(initial="1ms", factor=1.01, ceiling="1m", jitter=1),
        Backoff.exponential(initial=1, factor=1e300),
        Backoff.additive_jitter(),
        Backoff.additive_jitter(base=300, jitter=300),
        Backoff.full_jitter(),
        Backoff.full_jitter(initial=300, ceiling=300),
        Backoff.constant("5m"),
        Backoff.none(),
    ]
)


def a_failure(wait: timedelta | None = None) -> Failure:
    return replace(Failure.of(ErrorClass.RATE_LIMITED, "slow down"), wait=wait)


def seconds(backoff: Backoff, attempt: int, roll: float) -> float:
    return backoff.delay(attempt, roll=roll).total_seconds()


@pytest.mark.clause("RET-1")
def test_grading_waits_two_four_eight_seconds_give_or_take_a_fifth() -> None:
    backoff = Backoff.exponential()

    assert [seconds(backoff, attempt, 0.5) for attempt in (1, 2, 3)] == [2, 4, 8]
    assert [seconds(backoff, attempt, 0.0) for attempt in (1, 2, 3)] == pytest.approx([1.6, 3.2, 6.4])
    assert [seconds(backoff, attempt, 1.0) for attempt in (1, 2, 3)] == pytest.approx([2.4, 4.8, 9.6])


@pytest.mark.clause("RET-1")
@given(ATTEMPTS, ROLLS)
def test_grading_stays_within_a_fifth_of_its_formula_and_under_the_ceiling(attempt: int, roll: float) -> None:
    formula = min(2 ** min(attempt, 20), 300)

    delay = seconds(Backoff.exponential(), attempt, roll)

    assert 0.8 * formula <= delay + 1e-6
    assert delay <= min(1.2 * formula, 300) + 1e-6


@pytest.mark.clause("RET-2")
@given(ROLLS)
def test_the_converter_doubles_five_seconds_and_adds_up_to_five(roll: float) -> None:
    backoff = Backoff.additive_jitter()

    delays = [seconds(backoff, number + 1, roll) for number in (0, 1, 2)]

    assert delays == pytest.approx([5 * 2**number + 5 * roll for number in (0, 1, 2)], abs=1e-5)


@pytest.mark.clause("RET-3")
@given(ATTEMPTS, ROLLS)
def test_the_criticiser_waits_anywhere_up_to_a_step_that_doubles_to_a_minute(
    attempt: int, roll: float
) -> None:
    step = min(60, 2 ** min(attempt - 1, 20))

    delay = seconds(Backoff.full_jitter(), attempt, roll)

    assert delay == pytest.approx(roll * step, abs=1e-5)


@given(SHAPES, ATTEMPTS, ROLLS)
def test_no_delay_is_negative_or_above_the_ceiling(backoff: Backoff, attempt: int, roll: float) -> None:
    delay = backoff.delay(attempt, roll=roll)

    assert timedelta(0) <= delay <= backoff.ceiling <= CEILING


@given(SHAPES, ATTEMPTS)
def test_the_longest_delay_never_shrinks_from_one_attempt_to_the_next(backoff: Backoff, attempt: int) -> None:
    assert backoff.delay(attempt, roll=1) <= backoff.delay(attempt + 1, roll=1)


@pytest.mark.parametrize("backoff", [Backoff.exponential(), Backoff.additive_jitter(), Backoff.full_jitter()])
def test_attempt_two_thousand_has_a_delay_like_any_other(backoff: Backoff) -> None:
    assert backoff.delay(2_000, roll=1) == backoff.ceiling


@pytest.mark.parametrize("backoff", [Backoff.exponential(), Backoff.additive_jitter(), Backoff.full_jitter()])
def test_delays_at_the_ceiling_stay_spread_out(backoff: Backoff) -> None:
    delays = [backoff.delay(50, roll=part / 100) for part in range(101)]

    assert len(set(delays)) == 101


def test_a_constant_wait_ignores_attempt_and_chance() -> None:
    backoff = Backoff.constant("45s")

    assert {backoff.delay(attempt, roll=roll) for attempt in (1, 9) for roll in (0, 1)} == {
        timedelta(seconds=45)
    }


def test_no_backoff_is_no_wait() -> None:
    assert Backoff.none().delay(7, roll=1) == timedelta(0)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Backoff.exponential(ceiling="366d"), "ceiling"),
        (
            lambda: RetryPolicy(1, Backoff.exponential(ceiling="10m")),
            "up to 600 s, which is more than 300 s; allow",
        ),
        (lambda: RetryPolicy(1, Backoff.constant("6m")), "allow it with max_wait="),
        (
            lambda: RetryPolicy(1, Backoff.none(), timedelta(seconds=299)),
            "max_wait= raises the limit of 300 s",
        ),
        (lambda: RetryPolicy(1, Backoff.none(), timedelta(days=366)), "max_wait= raises the limit of 300 s"),
        (lambda: Backoff.exponential(initial=10, ceiling=5), "starts between"),
        (lambda: Backoff.exponential(factor=0.5), "factor"),
        (lambda: Backoff.exponential(factor=float("nan")), "factor"),
        (lambda: Backoff.exponential(jitter=1.5), "Jitter"),
        (lambda: Backoff.exponential(jitter=-0.1), "Jitter"),
        (lambda: Backoff.additive_jitter(jitter=301), "Jitter"),
        (lambda: Backoff.full_jitter(initial="soon"), "duration"),
        (lambda: Backoff.constant(-1), "negative"),
        (lambda: Backoff.exponential(factor=float("inf")), "factor"),
        (lambda: Backoff(timedelta(0), below=1.1), "from 0 to 1, not 1.1"),
        (lambda: Backoff(timedelta(0), above=1.1), "from 0 to 1, not 1.1"),
        (lambda: Backoff(timedelta(0), ceiling=timedelta(seconds=-1)), "must not be negative"),
        (lambda: Backoff(timedelta(seconds=-1)), "must not be negative"),
        (lambda: Backoff(301), "starts between 0 s and its ceiling of 300 s, not at 301 s"),
        (lambda: Backoff("soon"), "Not a duration: 'soon'"),
        (lambda: Backoff(True), "Not a duration: True"),
        (lambda: Backoff(timedelta(0), extra=timedelta(seconds=-1)), "must not be negative"),
        (lambda: Backoff(0, extra="301s"), "Jitter lies between 0 s and the ceiling of 300 s, not at 301 s"),
        (lambda: RetryPolicy(0, Backoff.none()), "at least one attempt"),
        (lambda: RetryPolicy(1.5, Backoff.none()), "at least one attempt"),  # type: ignore[arg-type]  # the point
        (lambda: RetryPolicy(True, Backoff.none()), "at least one attempt"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused_when_it_is_written(
    make: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


@pytest.mark.clause("RET-4")
def test_a_policy_may_wait_longer_than_five_minutes_if_it_says_so() -> None:
    hour, asked = (
        timedelta(hours=1),
        replace(Failure.of(ErrorClass.RATE_LIMITED, ""), wait=timedelta(minutes=50)),
    )
    with_max_wait = RetryPolicy(3, Backoff.none(), max_wait=hour)

    assert RetryPolicy(3, Backoff.none()).delay(1, asked, roll=1) == CEILING
    assert with_max_wait.delay(1, asked, roll=1) == timedelta(minutes=50)
    assert with_max_wait.delay(1, replace(asked, wait=2 * hour), roll=1) == hour
    assert RetryPolicy(3, Backoff.constant("1h"), hour).delay(1, replace(asked, wait=None), roll=1) == hour


def test_the_limits_themselves_can_be_kept() -> None:
    nothing, everything = timedelta(0), CEILING

    assert Backoff(nothing, ceiling=nothing).delay(9, roll=1) == nothing
    assert Backoff(everything, ceiling=everything).delay(1, roll=1) == everything
    assert Backoff(nothing, extra=everything).delay(1, roll=1) == everything
    assert Backoff(timedelta(seconds=2), below=1).delay(1, roll=0) == nothing
    assert Backoff(timedelta(seconds=2), above=1).delay(1, roll=1) == timedelta(seconds=4)
    assert RetryPolicy(1, Backoff.none()).attempts == 1


def test_the_lengths_of_a_bare_backoff_are_written_as_everywhere() -> None:
    bare = Backoff("2s", 2.0, "1m", extra=0.5)

    assert bare == Backoff(timedelta(seconds=2), 2.0, timedelta(minutes=1), extra=timedelta(milliseconds=500))
    assert (bare.initial, bare.ceiling) == (timedelta(seconds=2), timedelta(minutes=1))


@pytest.mark.parametrize("initial", ["1ms", "0.5s", 1, 5])
@pytest.mark.parametrize("factor", [1.01, 2, 10])
def test_every_wait_that_grows_does_so_by_its_factor_until_it_reaches_its_ceiling(
    initial: float | str, factor: float
) -> None:
    backoff = Backoff.exponential(initial=initial, factor=factor, ceiling=60, jitter=0)

    second, last = seconds(backoff, 2, 0.5), seconds(backoff, 5_000, 0.5)

    assert second == pytest.approx(duration(initial).total_seconds() * factor)
    assert last == 60


def test_the_ceiling_of_each_shape_is_the_one_that_was_asked_for() -> None:
    shapes = [
        Backoff.exponential(ceiling=20, jitter=0),
        Backoff.additive_jitter(ceiling=20),
        Backoff.full_jitter(ceiling=20),
    ]

    assert [seconds(shape, 99, 1) for shape in shapes] == [20, 20, 20]


@pytest.mark.clause("RET-4")
@given(SHAPES, ATTEMPTS, ROLLS, st.none() | st.timedeltas(min_value=timedelta(microseconds=1)))
def test_a_retry_waits_the_longer_of_backoff_and_hint_up_to_five_minutes(
    backoff: Backoff, attempt: int, roll: float, hint: timedelta | None
) -> None:
    delay = RetryPolicy(4, backoff).delay(attempt, a_failure(hint), roll=roll)

    assert delay == min(CEILING, max(backoff.delay(attempt, roll=roll), hint or timedelta(0)))


@pytest.mark.clause("RET-4")
@given(ROLLS)
def test_jitter_never_undercuts_a_hint(roll: float) -> None:
    hint = timedelta(seconds=8)

    delay = RetryPolicy(4, Backoff.exponential()).delay(3, a_failure(hint), roll=roll)

    assert delay >= hint


@pytest.mark.clause("RET-5")
def test_a_delay_follows_from_the_failure_and_the_chance_of_its_own_attempt() -> None:
    policy = RetryPolicy(5, Backoff.full_jitter())

    delays = [
        policy.delay(2, a_failure(), roll=0.5),
        policy.delay(2, a_failure(), roll=1.0),
        policy.delay(2, a_failure(timedelta(seconds=30)), roll=1.0),
        policy.delay(3, a_failure(), roll=0.25),
    ]

    assert delays == [timedelta(seconds=wait) for wait in (1, 2, 30, 1)]
