"""A message that could not be published, or was refused: it becomes a dead letter, and a job can bring it back.

A dead letter belongs to a failed job. The store writes that job as failed from the start: it has never run. A
replay runs it, and its function publishes the message, or hands it to its consumer, again.
"""

from typing import NamedTuple

from holdfast.core.failures.failure import Failure

PUBLISH = "holdfast.publish"
"""The job that publishes a failed message of the outbox again."""

CONSUME = "holdfast.consume"
"""The job that hands a refused message to its consumer again."""

INTERNAL_JOBS = (PUBLISH, CONSUME)
"""Jobs of Holdfast itself. Their dead letters are about messages, and have a cap of their own."""


class DeadMessage(NamedTuple):
    """A failed job that stands for a message: *name* is one of `INTERNAL_JOBS`, *args* what its function takes."""

    id: str
    name: str
    args: str
    failure: Failure
    trace: str | None = None
