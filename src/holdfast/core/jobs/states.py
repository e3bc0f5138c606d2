"""The state graph of a job, declared once.

A live job is `queued` or `processing`; everything else is an end. Only a failed
job can continue, on request: it comes back as a new generation, or
completes with a result that came after its deadline. A queued job fails when its
deadline passes.

>>> Status.PROCESSING in GRAPH[Status.QUEUED]
True
>>> allowed(Status.COMPLETED, Status.QUEUED)
False
"""

from enum import StrEnum


class Status(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether a job in this state is never claimed."""
        return self in ENDED


GRAPH: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.PROCESSING, Status.FAILED, Status.CANCELLED}),
    Status.PROCESSING: frozenset({Status.QUEUED, Status.COMPLETED, Status.FAILED, Status.CANCELLED}),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset({Status.QUEUED, Status.COMPLETED}),
    Status.CANCELLED: frozenset(),
}

ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


def allowed(source: Status, target: Status) -> bool:
    """Return whether a job may go from *source* to *target* in one step."""
    return target in GRAPH[source]


def mermaid() -> str:
    """Draw the graph as the documentation shows it."""
    lines = ["stateDiagram-v2", "    [*] --> queued"]
    for source, targets in GRAPH.items():
        lines += [f"    {source} --> {target}" for target in Status if target in targets]
    lines += [f"    {status} --> [*]" for status in Status if status in ENDED]
    return "\n".join(lines)
