"""What a scenario claims of the books in the end, and how it reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast import Status
from holdfast.errors import StateRefused, VersionRefused
from tests.simulation.processes import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.crashpoints.story import App, Story

    Scenario = Callable[[Story], Awaitable[None]]


class Scenarios(dict[str, "Scenario"]):
    """Scenarios by name; as a decorator, it adds a function under its name."""

    def __call__(self, run: Scenario) -> Scenario:
        """Add a scenario."""
        self[run.__name__] = run
        return run


def assert_all(story: Story, status: Status) -> None:
    """Every job that exists has come to this end."""
    for row in story.books.jobs:
        assert_end(story, row, status)


def assert_completed(story: Story, job_id: str) -> None:
    """The job is completed."""
    assert_end(story, row_of(story, job_id), Status.COMPLETED)


def assert_end(story: Story, row: dict[str, Any], status: Status) -> None:
    """This job has come to this end, unless its own code was cancelled."""
    fits = row["status"] == status or (story.injects(Fault.CANCEL) and cancelled_itself(row))
    assert fits, f"{row['name']} is {row['status']}: {row.get('failure')}"


def cancelled_itself(row: dict[str, Any]) -> bool:
    """Whether the job's own code cancelled itself: that is a bug, and not tried again."""
    failure = json.loads(row.get("failure") or "{}")
    return (failure.get("error_class"), failure.get("message")) == ("BUG", "CancelledError")


def assert_calls(story: Story, number: int, *, repeated: int = 1) -> None:
    """The service was called this often; in a story with a fault no more than some calls were repeated."""
    calls = len(story.world.service.log)
    fits = calls == number if story.calm else calls <= number + repeated
    assert fits, f"the service was called {calls} times, for {number}"


def assert_attempts(story: Story, job_id: str, number: int) -> None:
    """The job was begun this often; in a story with a fault once more."""
    attempt = row_of(story, job_id)["attempt"]
    allowed = (number,) if story.calm else (number, number + 1)
    assert attempt in allowed, f"the job ended in attempt {attempt}, not in {allowed}"


def calls_for(story: Story, stage: str) -> int:
    """How often the service was called for a stage."""
    return sum(stage in (entry.key or "") for entry in story.world.service.log)


def row_of(story: Story, job_id: str) -> dict[str, Any]:
    """The row of a job."""
    [row] = [row for row in story.books.jobs if row["id"] == job_id]
    return row


def status_of(story: Story, job_id: str) -> str:
    """The state of a job."""
    return str(row_of(story, job_id)["status"])


def stage_of(story: Story, job_id: str, name: str) -> dict[str, Any]:
    """The row of a job's stage."""
    [row] = [row for row in story.books.stages if (row["id"], row["name"]) == (job_id, name)]
    return row


def leases_of(story: Story, job_id: str) -> int:
    """How often the job was claimed."""
    return (int(row_of(story, job_id)["lease_token"]) + 1) // 2


def reasons_of(story: Story, job_id: str) -> list[str]:
    """Why the job went back to its queue without having failed."""
    events = [event for event in story.books.events if (event["id"], event["kind"]) == (job_id, "queued")]
    return [json.loads(event["meta"])["reason"] for event in events]


async def is_refused(submission: Awaitable[Any]) -> bool:
    """Whether a submission is refused for its version."""
    try:
        await submission
    except VersionRefused:
        return True
    return False


def unless_refused(act: Callable[[App], Awaitable[None]]) -> Callable[[App], Awaitable[None]]:
    """Let a client take a refusal for an answer: its request came too late."""

    async def acting(app: App) -> None:
        try:
            await act(app)
        except StateRefused:
            return

    return acting
