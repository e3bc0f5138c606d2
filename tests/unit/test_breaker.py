"""The settings of a breaker, and which of them are refused."""

from collections.abc import Callable

import pytest

from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.breaker_state import RecordedCall
from holdfast.core.providers.call_reports import exceeds_threshold
from tests.unit.breakers import BREAKER, NOW, calls


def test_slow_calls_open_it_where_that_was_asked_for() -> None:
    slow_breaker = Breaker(slow_after="2s", slow_threshold=0.5)

    assert exceeds_threshold(calls(20, 0, slow=11), slow_breaker)
    assert not exceeds_threshold(calls(20, 0, slow=10), slow_breaker)
    assert not exceeds_threshold(calls(20, 0, slow=20), BREAKER)
    assert [slow_breaker.is_slow(seconds) for seconds in (2.0, 2.1)] == [False, True]
    assert not BREAKER.is_slow(1e9)


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


@pytest.mark.parametrize("max_wait", ["299s", "366d", "soon"])
def test_a_longest_wait_that_cannot_be_is_refused(max_wait: str) -> None:
    with pytest.raises(ValueError, match=r"max_wait= raises the limit of 300 s|Not a duration"):
        Breaker(max_wait=max_wait)
