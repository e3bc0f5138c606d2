"""What an announcement says, and how long it is postponed."""

from datetime import UTC, datetime

from holdfast.core.messages.announcements import (
    AnnouncedFailure,
    AnnouncementKind,
    PendingAnnouncement,
    bits_of,
)
from holdfast.stores.rows import failure_text
from tests.builders import a_failure

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def pending(*, tries: int = 1, again: int = 0) -> PendingAnnouncement:
    return PendingAnnouncement(7, "job", "grade", AnnouncementKind.FAILED, 2, 3, again, None, NOW, tries)


def test_each_kind_has_the_bit_that_the_schema_describes() -> None:
    assert [kind.bit for kind in AnnouncementKind] == [1, 2, 4, 8, 16]
    assert [kind.value for kind in AnnouncementKind] == [
        "completed",
        "failed",
        "cancelled",
        "timed_out",
        "retrying",
    ]
    assert bits_of([AnnouncementKind.FAILED, AnnouncementKind.FAILED, AnnouncementKind.RETRYING]) == 18


def test_the_key_of_a_message_names_what_makes_it_unique() -> None:
    assert pending(again=1).message_key(0) == "announce:job:2:failed:3:1:0"


def test_a_postponed_announcement_waits_longer_each_time_up_to_an_hour() -> None:
    pauses = [pending(tries=tries).pause.total_seconds() for tries in (1, 2, 3, 4, 5, 6, 7, 1_000_000)]

    assert pauses == [2, 8, 32, 128, 512, 2048, 3600, 3600]
    assert [pending(tries=tries).alarming for tries in (4, 5, 6)] == [False, True, True]


def test_an_announced_failure_shows_neither_stack_nor_context() -> None:
    failure = a_failure(message="no luck", stack="Traceback: secret place")

    announced = AnnouncedFailure.load(failure_text(failure))

    assert announced == ("UPSTREAM_5XX", failure.code.value, "no luck", True)
    assert AnnouncedFailure.load(None) is None
