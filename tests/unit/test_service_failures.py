"""The simulated service leaves out no kind of failure that the engine's table knows."""

from __future__ import annotations

import re

import pytest

from holdfast import ErrorClass
from holdfast.core.failures.classifier import Classifier
from holdfast.core.failures.evidence import read as evidence
from holdfast.core.failures.rules import RULES
from tests.simulation.jobs import read
from tests.simulation.service_failures import HANGS, LASTING, PASSING, Expected, Failing

NO_SERVICES_DOING = {ErrorClass.WORKER_LOST, ErrorClass.STAGE_MISMATCH, ErrorClass.TIMEOUT}
"""A worker that is gone, code that has changed and a deadline that has passed are no answers."""

ANSWERING = [failing for failing in (*PASSING, *LASTING) if failing.seconds < HANGS]


def error_of(failing: Failing) -> BaseException:
    """Return the failure of a job's call to a service that fails like this."""
    try:
        read(failing.given())
    except BaseException as error:
        return error
    raise AssertionError(f"{failing.name} is no failure")


@pytest.mark.parametrize("failing", ANSWERING, ids=[failing.name for failing in ANSWERING])
def test_a_failure_of_the_service_is_taken_for_what_it_is(failing: Failing) -> None:
    failure = Classifier().classify(error_of(failing))

    wait = failure.wait.total_seconds() if failure.wait else 0.0
    assert Expected(failure.error_class, failure.retryable, min(wait, 300)) == failing.expected


def test_the_service_fails_in_every_class() -> None:
    assert {failing.means for failing in (*PASSING, *LASTING)} == set(ErrorClass) - NO_SERVICES_DOING


def test_the_service_answers_with_every_status_and_raises_every_error_of_the_client() -> None:
    known = {str(rule.subject) for rule in RULES}

    shown = {signal for failing in ANSWERING for signal in evidence(error_of(failing)).signals}

    expected = {signal for signal in known if re.match(r"http \d\d\d|httpx\.", signal)}
    assert expected - shown == set()


def test_no_two_failures_share_a_name() -> None:
    names = [failing.name for failing in (*PASSING, *LASTING)]

    assert len(set(names)) == len(names)
