"""The jobs that stand for messages which could not be published or received."""

from holdfast.core.messages.dead_message import CONSUME, INTERNAL_JOBS, PUBLISH, DeadMessage
from tests.builders import a_failure


def test_the_names_of_internal_jobs_are_stored_and_do_not_change() -> None:
    assert (PUBLISH, CONSUME) == ("holdfast.publish", "holdfast.consume")
    assert set(INTERNAL_JOBS) == {PUBLISH, CONSUME}


def test_a_dead_message_belongs_to_no_trace_unless_one_is_given() -> None:
    assert DeadMessage("1", PUBLISH, "{}", a_failure()).trace is None
