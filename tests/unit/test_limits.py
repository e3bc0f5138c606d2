"""How many calls a provider gets, over all workers."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.providers.limits import (
    AHEAD,
    LEASE,
    LIMIT_RELEASE_EVERY,
    SLACK,
    Grant,
    LimitAllocator,
    LimitRequest,
    Limits,
    Quota,
    Rate,
    Share,
    reallocate_share,
    releasable,
)

NOW = 1_000.0
PER_SECOND = timedelta(seconds=1)
NO_LIMITS = Limits()


class Fleet:
    """Workers that exchange with one shared state. Calls end when the test says so."""

    def __init__(self, limits: Limits = NO_LIMITS, key_limits: Limits = NO_LIMITS) -> None:
        self.limits, self.key_limits, self.now = limits, key_limits, NOW
        self.quota = Quota()
        self.keys: dict[str, Quota] = {}
        self.using: dict[str, Counter[str]] = {}
        self.grants: list[Grant] = []

    def ask(self, worker: str, waiting: int | Mapping[str, int] = 0) -> list[Grant]:
        """Have a worker exchange; what it is given, it uses."""
        using = self.using.setdefault(worker, Counter())
        requested = {"": waiting} if isinstance(waiting, int) else waiting
        allocator = LimitAllocator(
            worker, self.now, self.limits, self.key_limits, self.quota, dict(self.keys)
        )
        grants = allocator.allocate(LimitRequest(dict(using), requested))
        self.quota = allocator.quota
        self.keys = {key: quota for key, quota in allocator.keys.items() if not quota.idle(self.now)}
        using.update(grant.key for grant in grants)
        self.grants += grants
        return grants

    def end(self, worker: str, calls: int | None = None, key: str = "") -> None:
        """Have calls end, all of them unless it is said how many."""
        using = self.using.setdefault(worker, Counter())
        using[key] -= using[key] if calls is None else min(calls, using[key])

    @property
    def in_flight(self) -> int:
        return sum(using.total() for using in self.using.values())


def in_any_second(moments: Sequence[float]) -> int:
    """The most that fall into a second that begins with one of them."""
    ordered = sorted(moments)
    return max((bisect_left(ordered, at + 1.0) - first for first, at in enumerate(ordered)), default=0)


def keys_of(grants: Sequence[Grant]) -> list[str]:
    return [grant.key for grant in grants]


@pytest.mark.parametrize(
    ("text", "calls", "seconds"),
    [
        ("50/s", 50, 1),
        ("60/min", 60, 60),
        ("60/m", 60, 60),
        (" 60 / Minute ", 60, 60),
        ("5/10s", 5, 10),
        ("1000/h", 1000, 3600),
        ("2/1h30m", 2, 5400),
        ("10/day", 10, 86_400),
        ("1/0.5s", 1, 0.5),
    ],
)
def test_a_rate_is_read_as_people_write_it(text: str, calls: int, seconds: float) -> None:
    assert Rate.of(text) == Rate(calls, timedelta(seconds=seconds))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "50",
        "50/",
        "/s",
        "0/s",
        "-1/s",
        "1.5/s",
        "50/fortnight",
        "50/0s",
        "50/-1s",
        "50 per s",
        "9999999999/s",
        "50/s/s",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Not a rate|Not a duration"):
        Rate.of(text)


@pytest.mark.parametrize("make", [lambda: Limits(concurrency=0), lambda: Limits(concurrency=-1)])
def test_a_limit_that_lets_no_call_through_is_refused(make: Callable[[], Limits]) -> None:
    with pytest.raises(ValueError, match="lets no call through"):
        make()


def test_where_nothing_is_limited_every_call_begins_at_once() -> None:
    fleet = Fleet()

    assert fleet.ask("a", 100) == [Grant("", NOW)] * 100
    assert (fleet.quota, fleet.keys) == (Quota(), {}), "and nothing is written"


def test_calls_are_spread_evenly_over_the_time_of_a_rate() -> None:
    fleet = Fleet(Limits(rate=Rate.of("4/s")))

    assert [grant.at - NOW for grant in fleet.ask("a", 3)] == [0.0, 0.25, 0.5]
    assert [grant.at - NOW for grant in fleet.ask("b", 9)] == [0.75, 1.0], (
        "one second is reserved ahead, no more"
    )
    assert fleet.ask("c", 1) == []


@pytest.mark.clause("BRK-6")
@settings(max_examples=60)
@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.floats(0, 1.5)), max_size=60),
)
def test_in_no_second_more_calls_begin_than_the_rate_allows_whichever_worker_asks_when(
    calls: int, asks: list[tuple[int, int, float]]
) -> None:
    fleet = Fleet(Limits(rate=Rate(calls, PER_SECOND)))

    for worker, waiting, pause in asks:
        fleet.now += pause
        assert all(fleet.now <= grant.at <= fleet.now + AHEAD for grant in fleet.ask(f"{worker}", waiting))

    assert in_any_second([grant.at for grant in fleet.grants]) <= calls + 1


@pytest.mark.clause("BRK-6")
@settings(max_examples=15)
@given(st.integers(10, 100), st.integers(1, 6), st.randoms(use_true_random=False))
def test_with_calls_waiting_all_the_time_nearly_all_of_a_rate_is_used(
    calls: int, workers: int, dice: Random
) -> None:
    fleet = Fleet(Limits(rate=Rate(calls, PER_SECOND)))
    slots = 24 // workers
    busy: dict[int, list[float]] = {worker: [] for worker in range(workers)}

    for _ in range(4 * 20):
        for worker in dice.sample(range(workers), workers):
            busy[worker] = [at for at in busy[worker] if at > fleet.now]
            busy[worker] += [grant.at for grant in fleet.ask(f"{worker}", slots - len(busy[worker]))]
        fleet.now += 0.05

    begun = [grant.at for grant in fleet.grants if grant.at < NOW + 4]
    assert len(begun) >= 0.95 * calls * 4


def test_a_worker_that_dies_loses_the_moments_it_had_reserved_and_no_more() -> None:
    fleet = Fleet(Limits(rate=Rate.of("50/s")))
    fleet.ask("dead", 1_000)
    assert fleet.ask("b", 1) == []

    fleet.now += AHEAD / 2

    assert len(fleet.ask("b", 1_000)) == 25


def test_a_rate_that_is_declared_again_does_not_wait_for_the_moments_of_the_old_one() -> None:
    fleet = Fleet(Limits(rate=Rate.of("1/day")))
    assert len(fleet.ask("a", 2)) == 1

    fleet.limits = Limits(rate=Rate.of("2/s"))

    assert [grant.at - NOW for grant in fleet.ask("a", 9)] == [0.0, 0.5, 1.0]
    assert fleet.ask("a", 9) == [], "from here on the new one holds"


def test_nor_does_a_key_whose_rate_is_declared_again() -> None:
    fleet = Fleet(key_limits=Limits(rate=Rate.of("1/day")))
    assert len(fleet.ask("a", {"x": 2})) == 1

    fleet.key_limits = Limits(rate=Rate.of("2/s"))

    assert len(fleet.ask("a", {"x": 9})) == 1
    assert fleet.ask("a", {"x": 9}) == []


def test_a_clock_that_is_set_back_a_little_lets_no_second_block_go() -> None:
    fleet = Fleet(Limits(rate=Rate.of("50/s")))
    fleet.ask("a", 1_000)
    fleet.now -= 0.5

    assert fleet.ask("b", 1_000) == []


@pytest.mark.clause("BRK-6")
@settings(max_examples=60)
@given(
    st.integers(1, 12),
    st.lists(
        st.tuples(
            st.permutations(range(4)),
            st.lists(st.integers(0, 9), min_size=8, max_size=8),
            st.floats(0, LEASE / 3),
        ),
        max_size=25,
    ),
)
def test_all_workers_together_never_make_more_calls_at_a_time_than_allowed(
    limit: int, rounds: list[tuple[list[int], list[int], float]]
) -> None:
    fleet = Fleet(Limits(concurrency=limit))

    for order, numbers, pause in rounds:
        for worker in order:
            fleet.end(f"{worker}", numbers[worker])
            fleet.ask(f"{worker}", numbers[worker + 4])
            assert fleet.in_flight <= limit
        fleet.now += pause


@pytest.mark.clause("BRK-6")
@given(st.integers(1, 20), st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 30), min_size=1))
def test_shares_become_as_even_as_whole_numbers_allow(limit: int, wishes: dict[str, int]) -> None:
    shares: Mapping[str, Share] = {}
    for _ in range(3):
        for worker, requested in wishes.items():
            shares = reallocate_share(shares, limit, worker, using=0, requested=requested, now=NOW)

    calls = {worker: share.calls for worker, share in shares.items()}
    assert sum(calls.values()) == min(limit, sum(wishes.values())), (
        "nothing stays idle that a worker requests"
    )
    assert all(calls[worker] <= wishes[worker] for worker in wishes)
    wanting = [calls[worker] for worker in wishes if calls[worker] < wishes[worker]]
    assert max(calls.values()) <= min(wanting, default=limit) + 1


def test_a_newcomer_gets_its_share_as_the_calls_of_the_others_end() -> None:
    fleet = Fleet(Limits(concurrency=8))
    assert len(fleet.ask("a", 20)) == 8
    assert fleet.ask("b", 20) == []

    fleet.end("a", 5)
    assert len(fleet.ask("a", 20)) == 1, "from three back to its half"

    assert len(fleet.ask("b", 20)) == 4


@pytest.mark.clause("BRK-6")
def test_the_share_of_a_worker_that_died_comes_back_with_the_end_of_its_lease() -> None:
    fleet = Fleet(Limits(concurrency=4))
    fleet.ask("dead", 4)

    fleet.now += LEASE - 0.001
    assert fleet.ask("b", 9) == []
    fleet.now += 0.001

    assert len(fleet.ask("b", 9)) == 4


def test_a_worker_that_slept_through_its_lease_keeps_what_it_uses_and_gets_nothing_more() -> None:
    fleet = Fleet(Limits(concurrency=4))
    fleet.ask("slept", 3)
    fleet.now += LEASE
    fleet.ask("b", 4)

    assert fleet.ask("slept", 9) == []
    assert fleet.quota.shares["slept"].calls == 3

    fleet.end("slept")
    assert fleet.ask("slept", 9) == []
    assert fleet.quota.shares["slept"].calls == 0


def test_a_worker_with_no_wish_has_no_share() -> None:
    fleet = Fleet(Limits(concurrency=4))
    fleet.ask("a", 4)
    fleet.end("a")
    fleet.ask("a")

    assert fleet.quota == Quota()


def test_a_share_that_stays_as_it_is_is_renewed_in_good_time_and_not_each_time() -> None:
    fleet = Fleet(Limits(concurrency=4))
    fleet.ask("a", 2)
    fleet.ask("a")
    first = fleet.quota
    fleet.now += LEASE / 2 - 0.001
    fleet.ask("a")
    assert fleet.quota is first

    fleet.now += 0.001
    fleet.ask("a")

    assert fleet.quota.shares["a"].expires == fleet.now + LEASE


def test_a_worker_has_the_places_of_its_share_while_its_lease_runs() -> None:
    quota, four = Quota(shares={"a": Share(3, 5, NOW)}), Limits(concurrency=4)

    assert quota.slots(four, "a", NOW - 1) == 3
    assert quota.slots(four, "a", NOW) == 0
    assert quota.slots(four, "b", NOW - 1) == 0
    assert quota.slots(NO_LIMITS, "a", NOW - 1) == 0
    assert (quota.demand(NOW - 1), quota.demand(NOW)) == (5, 0)


@pytest.mark.clause("BRK-6")
def test_a_worker_that_has_more_than_its_fair_part_begins_nothing_new() -> None:
    quota = Quota(shares={"a": Share(4, 9, NOW + 1), "b": Share(0, 9, NOW + 1)})

    assert quota.slots(Limits(concurrency=4), "a", NOW) == 2
    assert quota.slots(Limits(concurrency=4), "b", NOW) == 0, "until the other has ended two"


def test_a_share_that_is_lent_for_too_long_is_from_a_clock_that_went_back() -> None:
    fleet = Fleet(Limits(concurrency=4))
    fleet.ask("a", 4)
    fleet.now -= 3_600

    assert len(fleet.ask("b", 4)) == 4


def test_keys_take_turns() -> None:
    fleet = Fleet(Limits(concurrency=5))

    assert keys_of(fleet.ask("a", {"big": 100, "small": 1, "other": 2})) == [
        "big",
        "small",
        "other",
        "big",
        "other",
    ]


def test_keys_take_turns_at_the_moments_of_a_rate_too() -> None:
    fleet = Fleet(Limits(rate=Rate.of("4/s")))

    grants = fleet.ask("a", {"big": 100, "small": 2})

    assert [(grant.key, grant.at - NOW) for grant in grants] == [
        ("big", 0.0),
        ("small", 0.25),
        ("big", 0.5),
        ("small", 0.75),
        ("big", 1.0),
    ]


@pytest.mark.clause("BRK-6")
def test_no_key_makes_more_calls_at_a_time_than_its_own_limit_whatever_is_left_of_the_others() -> None:
    fleet = Fleet(Limits(concurrency=10), Limits(concurrency=2))

    assert keys_of(fleet.ask("a", {"big": 9, "small": 1})) == ["big", "small", "big"]
    assert keys_of(fleet.ask("b", {"big": 9, "other": 9})) == ["other", "other"]


def test_what_a_worker_had_of_a_key_goes_to_another_as_soon_as_it_is_not_needed_any_more() -> None:
    fleet = Fleet(key_limits=Limits(concurrency=1))
    fleet.ask("a", {"customer": 1})
    fleet.end("a", key="customer")
    fleet.using["a"].clear()
    fleet.ask("a", {"another": 1})

    assert keys_of(fleet.ask("b", {"customer": 1})) == ["customer"]


@pytest.mark.clause("BRK-6")
@settings(max_examples=60)
@given(
    st.integers(1, 50),
    st.none() | st.integers(20, 200),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 30), st.floats(0, 0.5)), max_size=60
    ),
)
def test_no_key_begins_more_calls_in_a_second_than_its_own_rate(
    calls: int, in_all: int | None, asks: list[tuple[int, int, int, float]]
) -> None:
    limits = NO_LIMITS if in_all is None else Limits(rate=Rate(in_all, PER_SECOND))
    fleet = Fleet(limits, Limits(rate=Rate(calls, PER_SECOND)))

    for worker, first, second, pause in asks:
        fleet.now += pause
        fleet.ask(f"{worker}", {"x": first, "y": second})

    for key in ("x", "y"):
        moments = [grant.at for grant in fleet.grants if grant.key == key]
        assert in_any_second(moments) <= calls * (1 + SLACK) + 1
    assert in_all is None or in_any_second([grant.at for grant in fleet.grants]) <= in_all + 1


@pytest.mark.parametrize("limits", [NO_LIMITS, Limits(rate=Rate.of("100/s"))])
def test_a_key_with_calls_waiting_all_the_time_uses_nearly_all_of_its_rate(limits: Limits) -> None:
    fleet = Fleet(limits, Limits(rate=Rate.of("20/s")))
    for _ in range(200):
        fleet.ask("a", {"x": 10})
        fleet.now += 0.05

    begun = [grant for grant in fleet.grants if grant.at < NOW + 10]
    assert len(begun) >= 0.95 * 20 * 10


def test_a_key_whose_time_has_not_come_leaves_its_moment_to_the_others() -> None:
    fleet = Fleet(Limits(rate=Rate.of("10/s")), Limits(rate=Rate.of("1/s")))

    assert keys_of(fleet.ask("a", {"x": 5, "y": 5, "z": 5})) == ["x", "y", "z"]


@pytest.mark.parametrize("key_limits", [Limits(rate=Rate.of("10/s")), Limits(concurrency=1)])
def test_keys_that_no_call_uses_any_more_are_forgotten(key_limits: Limits) -> None:
    fleet = Fleet(key_limits=key_limits)
    for customer in range(100):
        fleet.ask("a", {f"{customer}": 1})
    assert len(fleet.keys) == 100

    fleet.now += LEASE
    fleet.using["a"].clear()
    fleet.ask("a", {"last": 1})

    assert list(fleet.keys) == ["last"]


def test_a_key_is_remembered_while_it_may_still_be_ahead_of_its_rate() -> None:
    assert not Quota(next_at=NOW).idle(NOW + SLACK / 2)
    assert not Quota(release_at=NOW).idle(NOW)
    assert Quota(next_at=NOW, release_at=NOW).idle(NOW + 2 * SLACK)


@pytest.mark.parametrize(
    ("limits", "quota", "count"),
    [
        (NO_LIMITS, Quota(), 100),
        (Limits(concurrency=4), Quota(), 8),
        (Limits(concurrency=4), Quota(shares={"a": Share(4, 5, NOW + 1)}), 3),
        (Limits(concurrency=4), Quota(shares={"a": Share(4, 9, NOW + 1)}), 0),
        (Limits(concurrency=4), Quota(shares={"dead": Share(4, 9, NOW)}), 8),
        (Limits(rate=Rate.of("4/s")), Quota(), 5),
        (Limits(rate=Rate.of("4/s")), Quota(next_at=NOW + 0.75), 2),
        (Limits(rate=Rate.of("4/s")), Quota(next_at=NOW + 1.25), 0),
        (Limits(rate=Rate.of("1/min")), Quota(next_at=NOW - 9), 1),
        (Limits(rate=Rate.of("1/min")), Quota(next_at=NOW + 59), 0),
        (Limits(concurrency=1, rate=Rate.of("4/s")), Quota(), 2),
        (Limits(rate=Rate.of("500/s")), Quota(), 100),
    ],
)
def test_as_many_jobs_are_released_as_can_begin_soon(limits: Limits, quota: Quota, count: int) -> None:
    assert releasable(limits, quota, NOW, limit=100)[1] == count


def test_released_jobs_have_a_while_to_ask_for_their_share_before_others_follow() -> None:
    limits = Limits(concurrency=4)
    quota, _ = releasable(limits, Quota(), NOW, limit=100)

    assert releasable(limits, quota, NOW + LIMIT_RELEASE_EVERY - 0.001, limit=100) == (quota, 0)
    assert releasable(limits, quota, NOW + LIMIT_RELEASE_EVERY, limit=100)[1] == 8


def test_a_release_that_is_further_off_than_they_are_was_recorded_by_a_clock_that_went_back() -> None:
    recorded = Quota(release_at=NOW + 3_600)

    quota, count = releasable(Limits(concurrency=4), recorded, NOW, limit=100)

    assert (count, quota.release_at) == (8, NOW + LIMIT_RELEASE_EVERY)


def test_releasing_no_job_is_not_worth_a_write() -> None:
    assert releasable(Limits(concurrency=4), Quota(), NOW, limit=0) == (Quota(), 0)


def test_a_row_means_nothing_any_more_from_when_on_its_key_is_idle() -> None:
    quota = Quota(NOW, NOW + 1, {"a": Share(1, 1, NOW + 2)})

    assert quota.idle(quota.expires)
    assert not quota.idle(NOW + 1.9)
    assert Quota().expires < 1
