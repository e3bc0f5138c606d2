"""An outage of a broker: which messages are tried, after which pauses, and what is logged."""

import io
import json
from datetime import UTC, datetime

import pytest

from holdfast.engine.messages.relays.broker_availability import LONGEST_PAUSE, BrokerAvailability
from holdfast.telemetry.logs import StructuredLogger


class Watch:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)


class Longest:
    """Chance that always takes the longest pause."""

    def random(self) -> float:
        return 1.0


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def availability(watch: Watch, log: io.StringIO) -> BrokerAvailability:
    return BrokerAvailability(
        "relay", clock=watch, random=Longest(), logger=StructuredLogger(level="DEBUG", stream=log)
    )


def fail(availability: BrokerAvailability, broker: str = "rabbit") -> None:
    assert availability.admits(broker)
    availability.failed(broker, "connection refused")


def test_a_broker_that_answers_takes_any_number_of_messages(availability: BrokerAvailability) -> None:
    assert [availability.admits("rabbit") for _ in range(3)] == [True, True, True]
    assert availability.seconds_to_trial(frozenset({"rabbit"})) is None


def test_after_a_failure_one_message_at_a_time_is_tried(
    availability: BrokerAvailability, watch: Watch
) -> None:
    fail(availability)

    assert not availability.admits("rabbit")
    watch.seconds += 0.25
    assert [availability.admits("rabbit") for _ in range(3)] == [True, False, False]


def test_the_pauses_double_up_to_ten_seconds(availability: BrokerAvailability, watch: Watch) -> None:
    pauses = []
    for _ in range(9):
        fail(availability)
        pause = availability.seconds_to_trial(frozenset({"rabbit"}))
        assert pause is not None
        pauses.append(pause)
        watch.seconds += pause

    assert pauses == pytest.approx(
        [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    )


def test_messages_that_fail_together_are_one_failure(
    availability: BrokerAvailability, log: io.StringIO
) -> None:
    for _ in range(100):
        availability.failed("rabbit", "connection refused")

    assert availability.seconds_to_trial(frozenset({"rabbit"})) == 0.25
    assert len(log.getvalue().splitlines()) == 1


def test_an_outage_is_one_line_when_it_begins_and_one_when_it_ends(
    availability: BrokerAvailability, watch: Watch, log: io.StringIO
) -> None:
    for _ in range(3):
        fail(availability)
        watch.seconds += 20
    assert availability.admits("rabbit")
    availability.answered("rabbit", asked_at=watch.seconds)

    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["broker unavailable", "broker available"]
    assert lines[1]["duration_ms"] == 60_000
    assert [availability.admits("rabbit") for _ in range(2)] == [True, True]


def test_an_answer_to_a_message_that_was_sent_before_the_outage_does_not_end_it(
    availability: BrokerAvailability, watch: Watch
) -> None:
    asked_at = watch.seconds
    watch.seconds += 1
    fail(availability)

    availability.answered("rabbit", asked_at=asked_at)

    assert not availability.admits("rabbit")


def test_a_trial_that_is_given_up_leaves_its_place_to_another(
    availability: BrokerAvailability, watch: Watch
) -> None:
    fail(availability)
    watch.seconds += 1
    assert availability.admits("rabbit")

    availability.abandoned("rabbit")

    assert availability.admits("rabbit")


def test_a_relay_rests_only_if_none_of_its_brokers_takes_messages(
    availability: BrokerAvailability,
) -> None:
    fail(availability, "rabbit")

    assert availability.seconds_to_trial(frozenset({"rabbit", "redis"})) is None
    assert availability.seconds_to_trial(frozenset({"rabbit"})) == 0.25
    assert availability.seconds_to_trial(frozenset()) is None
