"""Lengths and numbers that a worker lives by."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.engine.options import WorkerOptions
from holdfast.errors import ConfigError


def test_lengths_are_written_as_everywhere() -> None:
    options = WorkerOptions(lease="90s", grace=0, poll=0.5)

    assert options == WorkerOptions(
        lease=timedelta(seconds=90), grace=timedelta(0), poll=timedelta(milliseconds=500)
    )


@pytest.mark.parametrize("name", ["lease", "grace", "poll"])
@pytest.mark.parametrize(
    ("length", "complaint"),
    [
        ("soon", "Not a duration: 'soon'"),
        (True, "Not a duration: True"),
        (timedelta(seconds=-1), "must not be negative"),
        (timedelta.max, "at most 36,500 days"),
        (float("nan"), "must be finite"),
    ],
)
def test_what_is_no_length_is_refused_as_everywhere(name: str, length: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        WorkerOptions(**{name: length})


@pytest.mark.parametrize("name", ["lease", "poll"])
def test_a_worker_that_would_hold_nothing_or_never_rest_is_refused(name: str) -> None:
    lengths: dict[str, Any] = {name: 0}

    with pytest.raises(ConfigError, match=f"{name} must be positive"):
        WorkerOptions(**lengths)
