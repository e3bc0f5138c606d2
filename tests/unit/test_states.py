"""The state graph of a job."""

import pytest

from holdfast.core.jobs.states import Status, allowed, mermaid

STEPS = {
    ("queued", "processing"),
    ("queued", "failed"),  # its deadline passed
    ("queued", "cancelled"),
    ("processing", "queued"),
    ("processing", "completed"),
    ("processing", "failed"),
    ("processing", "cancelled"),
    ("failed", "queued"),
    ("failed", "completed"),  # a late result was accepted
}
ENDS = {"completed", "failed", "cancelled"}


@pytest.mark.parametrize("source", Status)
@pytest.mark.parametrize("target", Status)
def test_a_job_takes_the_agreed_steps_and_no_other(source: Status, target: Status) -> None:
    assert allowed(source, target) == ((source.value, target.value) in STEPS)


@pytest.mark.parametrize("status", Status)
def test_completed_failed_and_cancelled_are_the_ends(status: Status) -> None:
    assert status.ended == (status.value in ENDS)


def test_the_drawing_has_every_step_one_beginning_and_three_ends() -> None:
    title, *arrows = mermaid().split("\n")

    assert title == "stateDiagram-v2"
    assert sorted(arrow.strip() for arrow in arrows) == sorted(
        ["[*] --> queued", *(f"{a} --> {b}" for a, b in STEPS), *(f"{end} --> [*]" for end in ENDS)]
    )
