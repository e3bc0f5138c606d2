"""A job's history, from its row and from what was recorded."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core.jobs.history import StoredStage, history
from holdfast.core.jobs.job import Event, EventKind, Job
from holdfast.core.jobs.stages import StageKey, StageStatus
from holdfast.core.jobs.states import Status
from tests.builders import a_failure

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

QUEUED = Event(EventKind.QUEUED, NOON)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def a_row(status: Status = Status.QUEUED, **known: Any) -> Job:
    """The row of a job that was submitted at noon."""
    return Job(
        id="j1",
        name="greet",
        queue="default",
        owner="",
        status=status,
        priority=0,
        attempt=0,
        generation=1,
        lease_token=0,
        losses=0,
        created_at=NOON,
        queued_at=NOON,
        updated_at=NOON,
        **known,
    )


def an_ended_row(status: Status, **known: Any) -> Job:
    return a_row(status, last_attempt=2, last_attempt_at=at(1), finished_at=at(9), **known)


def test_a_job_that_was_never_claimed_was_queued_and_nothing_else() -> None:
    assert history(a_row(), [], []) == [QUEUED]


def test_a_running_job_shows_who_runs_it_since_when_and_in_which_attempt() -> None:
    row = a_row(Status.PROCESSING, leased_by="w1", last_attempt=3, last_attempt_at=at(1))

    assert history(row, [], []) == [
        QUEUED,
        Event(EventKind.PROCESSING, at(1), {"attempt": 3, "worker": "w1"}),
    ]


@pytest.mark.parametrize("known", [{"leased_by": "w1"}, {"last_attempt_at": at(1)}])
def test_a_row_that_holds_half_of_an_attempt_shows_none(known: dict[str, Any]) -> None:
    assert history(a_row(**known), [], []) == [QUEUED]


def test_a_completed_job_shows_in_which_attempt() -> None:
    assert history(an_ended_row(Status.COMPLETED), [], []) == [
        QUEUED,
        Event(EventKind.COMPLETED, at(9), {"attempt": 2}),
    ]


def test_a_cancelled_job_shows_when() -> None:
    assert history(an_ended_row(Status.CANCELLED), [], []) == [QUEUED, Event(EventKind.CANCELLED, at(9))]


def test_a_failed_job_shows_why_and_in_which_stage() -> None:
    row = an_ended_row(Status.FAILED, failure=a_failure(stack="in grade"), stage="fetch")

    [_, end] = history(row, [], [])

    assert end == Event(EventKind.FAILED, at(9), a_failure().summary() | {"stage": "fetch"})


def test_a_failure_outside_of_stages_names_none() -> None:
    [_, end] = history(an_ended_row(Status.FAILED, failure=a_failure()), [], [])

    assert end.meta == a_failure().summary()


def test_a_failed_job_whose_failure_is_not_known_still_shows_its_end() -> None:
    [_, end] = history(an_ended_row(Status.FAILED), [], [])

    assert end == Event(EventKind.FAILED, at(9))


def test_a_job_whose_deadline_passed_has_expired_whatever_it_failed_with() -> None:
    row = an_ended_row(Status.FAILED, failure=a_failure(), stage="fetch", timed_out_at=at(9))

    assert history(row, [], []) == [QUEUED, Event(EventKind.EXPIRED, at(9))]


def test_an_expired_job_shows_that_it_has_a_late_result() -> None:
    row = an_ended_row(Status.FAILED, timed_out_at=at(9), late_at=at(20), late_result="42")

    assert history(row, [], []) == [QUEUED, Event(EventKind.EXPIRED, at(9), {"late": True})]


def test_an_accepted_late_result_completes_the_job_after_it_expired() -> None:
    row = replace(an_ended_row(Status.COMPLETED, timed_out_at=at(9), late_at=at(20)), finished_at=at(30))
    stored = [Event(EventKind.EXPIRED, at(9)), Event(EventKind.ACCEPTED, at(30), {"actor": "ada"})]

    assert kinds(history(row, stored, [])) == "queued expired accepted completed"
    assert kinds(history(replace(row, leased_by="w1"), stored, [])) == (
        "queued processing expired accepted completed"
    )


def test_a_stage_is_shown_by_its_name_its_attempt_and_how_it_ended() -> None:
    stored = StoredStage(at(4), StageKey("fetch", "#2"), 5, StageStatus.FAILED)

    [_, stage] = history(a_row(), [], [stored])

    assert stage == Event(EventKind.STAGE, at(4), {"stage": "fetch[#2]", "attempt": 5, "status": "failed"})


def test_a_stage_that_a_provider_computed_names_it() -> None:
    stored = StoredStage(at(4), StageKey("fetch", "#1"), 1, StageStatus.DONE, provider="llm")

    [_, stage] = history(a_row(), [], [stored])

    assert stage.meta == {"stage": "fetch", "attempt": 1, "status": "done", "provider": "llm"}


def test_events_are_listed_in_the_order_in_which_they_were_written() -> None:
    row = replace(an_ended_row(Status.COMPLETED), leased_by="w1", last_attempt_at=at(6))
    stored = [Event(EventKind.PROCESSING, at(2)), Event(EventKind.RETRY, at(5))]
    stages = [StoredStage(at(7), StageKey("b", "#1"), 1, StageStatus.DONE)]

    events = history(row, stored, stages)

    assert [event.at for event in events] == [at(second) for second in (0, 2, 5, 6, 7, 9)]


def kinds(events: list[Event]) -> str:
    return " ".join(event.kind.value for event in events)


def test_on_a_clock_that_stands_still_events_are_listed_in_the_order_of_a_life() -> None:
    row = replace(an_ended_row(Status.COMPLETED), leased_by="w1", last_attempt_at=NOON, finished_at=NOON)
    stages = [StoredStage(NOON, StageKey("fetch", "#1"), 1, StageStatus.DONE)]

    events = history(row, [Event(EventKind.PROCESSING, NOON), Event(EventKind.RETRY, NOON)], stages)

    assert kinds(events) == "queued processing retry processing stage completed"


@pytest.mark.parametrize(
    "end",
    [
        EventKind.QUEUED,
        EventKind.RETRY,
        EventKind.PARKED,
        EventKind.HELD,
        EventKind.FAILED,
        EventKind.EXPIRED,
    ],
)
def test_stages_written_together_with_the_end_of_their_run_are_listed_before_it(end: EventKind) -> None:
    stages = [StoredStage(at(9), StageKey(name, "#1"), 1, StageStatus.DONE) for name in ("fetch", "llm")]

    events = history(a_row(), [Event(EventKind.PROCESSING, at(1)), Event(end, at(9))], stages)

    assert kinds(events) == f"queued processing stage stage {end}"
    assert [event.meta["stage"] for event in events[2:4]] == ["fetch", "llm"]


def test_a_stage_written_after_the_end_of_a_run_is_listed_after_it() -> None:
    stages = [StoredStage(at(9), StageKey("fetch", "#1"), 1, StageStatus.DONE)]

    events = history(a_row(), [Event(EventKind.PROCESSING, at(1)), Event(EventKind.RETRY, at(8))], stages)

    assert kinds(events) == "queued processing retry stage"


def test_whatever_a_clock_says_a_job_was_queued_before_its_stages_ended() -> None:
    stages = [StoredStage(NOON, StageKey("fetch", "#1"), 1, StageStatus.DONE)]

    assert kinds(history(a_row(), [], stages)) == "queued stage"


def test_a_stage_is_listed_before_the_end_of_its_run_also_where_the_claim_was_not_recorded() -> None:
    stages = [StoredStage(at(9), StageKey("fetch", "#1"), 1, StageStatus.DONE)]

    assert kinds(history(a_row(), [Event(EventKind.RETRY, at(9))], stages)) == "queued stage retry"


def a_mark(second: float, name: str, token: int, number: int) -> StoredStage:
    return StoredStage(at(second), StageKey(name, "#1"), 1, StageStatus.DONE, None, token, number)


def test_a_clock_that_was_set_back_does_not_change_the_order() -> None:
    row = replace(
        an_ended_row(Status.COMPLETED),
        leased_by="w2",
        last_attempt_at=at(-50),
        finished_at=at(-70),
        created_at=at(0),
    )
    stored = [
        Event(EventKind.PROCESSING, at(10)),
        Event(EventKind.RETRY, at(-30)),
        Event(EventKind.WARNING, at(-10)),
        Event(EventKind.WARNING, at(-80)),
    ]
    stages = [a_mark(-60, "c", 3, 3), a_mark(20, "a", 1, 1), a_mark(-40, "b", 1, 2), a_mark(-65, "d", 3, 4)]

    events = history(row, stored, stages)

    without_warnings = kinds(events).replace(" warning", "")
    assert without_warnings == "queued processing stage stage retry processing stage stage completed"
    assert [event.meta["stage"] for event in events if event.kind is EventKind.STAGE] == ["a", "b", "c", "d"]


def test_a_signal_is_listed_by_the_clock_before_or_after_the_claim_and_the_stages_beside_it() -> None:
    stored = [
        Event(EventKind.SIGNALLED, at(1)),
        Event(EventKind.SIGNALLED, at(3)),
        Event(EventKind.SIGNALLED, at(5)),
        Event(EventKind.PROCESSING, at(2)),
        Event(EventKind.RETRY, at(9)),
    ]

    events = history(a_row(), stored, [a_mark(4, "a", 1, 1)])

    assert kinds(events) == "queued signalled processing signalled stage signalled retry"


@pytest.mark.parametrize("end", [EventKind.FAILED, EventKind.EXPIRED])
def test_a_warning_after_an_end_that_a_replay_has_recorded_is_listed_after_it(end: EventKind) -> None:
    stored = [
        Event(EventKind.WARNING, at(2)),
        Event(EventKind.WARNING, at(4)),
        Event(EventKind.PROCESSING, at(1)),
        Event(end, at(3)),
        Event(EventKind.REPLAYED, at(5)),
    ]

    assert kinds(history(a_row(), stored, [])) == f"queued processing warning {end} warning replayed"


def test_a_warning_between_a_deadline_and_the_acceptance_of_a_late_result_is_listed_there() -> None:
    row = replace(
        an_ended_row(Status.COMPLETED, timed_out_at=at(9), late_at=at(20), leased_by="w1"), finished_at=at(30)
    )
    stored = [
        Event(EventKind.WARNING, at(4)),
        Event(EventKind.WARNING, at(25)),
        Event(EventKind.EXPIRED, at(9)),
        Event(EventKind.ACCEPTED, at(30)),
        Event(EventKind.WARNING, at(40)),
    ]

    events = kinds(history(row, stored, []))

    assert events == "queued processing warning expired warning accepted completed warning"


def test_stages_that_a_replay_has_recorded_are_listed_in_their_runs() -> None:
    stored = [
        Event(EventKind.PROCESSING, at(1)),
        Event(EventKind.RETRY, at(3)),
        Event(EventKind.PROCESSING, at(4)),
        Event(EventKind.STAGE, at(6), {"stage": "late"}),
        Event(EventKind.STAGE, at(2), {"stage": "early"}),
        Event(EventKind.FAILED, at(7)),
        Event(EventKind.REPLAYED, at(8)),
        Event(EventKind.STAGE, at(0), {"stage": "alone"}),
    ]

    events = history(a_row(), stored, [])

    assert kinds(events) == "queued processing stage retry processing stage failed replayed stage"
    assert [event.meta["stage"] for event in events if event.kind is EventKind.STAGE] == [
        "early",
        "late",
        "alone",
    ]


def test_what_is_left_of_a_purged_job_says_so_last() -> None:
    row = replace(an_ended_row(Status.COMPLETED), purged_at=at(5))

    assert kinds(history(row, [], [])) == "queued completed purged"
