"""The garbage collector while workers run."""

import gc
from collections.abc import Iterator

import pytest

from holdfast.engine.worker.garbage_collector import YOUNG, GarbageCollector


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_the_collector_looks_less_often_until_the_last_worker_has_ended() -> None:
    gc.set_threshold(700, 10, 10)
    collector = GarbageCollector()

    with collector.relaxed():
        with collector.relaxed():
            assert gc.get_threshold() == (YOUNG, 10, 10)
        assert gc.get_threshold() == (YOUNG, 10, 10)

    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("threshold", [0, 2 * YOUNG], ids=["turned off", "relaxed more"])
def test_a_collector_that_is_relaxed_already_is_left_alone(threshold: int) -> None:
    gc.set_threshold(threshold, 10, 10)

    with GarbageCollector().relaxed():
        assert gc.get_threshold() == (threshold, 10, 10)
