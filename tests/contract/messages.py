"""Message types for tests of publishing, after those of a system that grades submissions."""

from typing import Any

from pydantic import BaseModel

from holdfast import Holdfast


class GradingRequest(BaseModel):
    """A request to grade a submission."""

    requestId: str  # noqa: N815 - the names are those of the JSON
    submissionId: str = "sub_1"  # noqa: N815
    metadata: dict[str, Any] = {}


def declare_request(hold: Holdfast, *, version: int = 1) -> None:
    """Declare `GradingRequest`, with a function in the place of its broker."""
    hold.broker("local", lambda message: None)
    hold.message(
        "grading.request",
        exchange="vstep.exchange",
        identity="requestId",
        aggregate_type="Submission",
        aggregate="submissionId",
        version=version,
    )(GradingRequest)
