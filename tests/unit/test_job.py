"""What a job is, as submitted and as looked for."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.errors import JobNotFound, PayloadInvalid
from holdfast.core.jobs.job import JobFilter, known_id
from holdfast.core.jobs.states import ENDED, Status
from tests.builders import a_job

JOB_ID = "018f2f5e-7b5a-7cc0-8f00-3b2a1c0d9e8f"


@pytest.mark.parametrize(
    ("options", "unique"),
    [({}, False), ({"key": "k1"}, True), ({"subject": "c1"}, True), ({"key": "k1", "subject": "c1"}, True)],
)
def test_an_earlier_job_may_stand_in_for_one_with_a_key_or_a_subject(
    options: dict[str, Any], unique: bool
) -> None:
    assert a_job(**options).unique is unique


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_no_jobs_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        JobFilter(limit=limit)


def test_a_page_may_hold_one_job_and_end_before_another() -> None:
    asked = JobFilter(limit=1, before=JOB_ID)

    assert (asked.limit, asked.before) == (1, JOB_ID)


def test_jobs_at_risk_have_no_page_before_another() -> None:
    with pytest.raises(ValueError, match=r"without pages; raise limit="):
        JobFilter(at_risk=timedelta(minutes=5), before=JOB_ID)


@pytest.mark.parametrize("asked", [{"key": "k1"}, {"subject": "c1"}, {"version": 1}])
def test_jobs_at_risk_are_not_found_by_key(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="leave at_risk= out"):
        JobFilter(at_risk=timedelta(minutes=5), **asked)


@pytest.mark.parametrize("field", ["name", "owner", "queue", "key", "subject"])
@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_text_that_no_store_can_hold_is_refused(field: str, text: str) -> None:
    filters: dict[str, Any] = {field: text}

    with pytest.raises(PayloadInvalid, match=field):
        JobFilter(**filters)


@pytest.mark.parametrize("status", sorted(ENDED))
def test_a_job_that_has_ended_is_not_at_risk(status: Status) -> None:
    with pytest.raises(ValueError, match=f"is {status} has ended"):
        JobFilter(at_risk=timedelta(minutes=5), status=status)


@pytest.mark.parametrize("status", [None, Status.QUEUED, Status.PROCESSING])
def test_live_jobs_may_be_at_risk(status: Status | None) -> None:
    assert JobFilter(at_risk=timedelta(minutes=5), status=status).status is status


def test_a_page_cannot_end_before_what_is_no_job() -> None:
    with pytest.raises(ValueError, match="UUID"):
        JobFilter(before="yesterday")


def test_an_id_that_can_be_nobodys_is_not_found() -> None:
    with pytest.raises(JobNotFound, match="there is no job 'yesterday'; a job's id is a UUID"):
        known_id("yesterday")
