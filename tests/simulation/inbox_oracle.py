"""The inbox oracle: it reads the inbox after every commit, and sees every acknowledgement.

A message that the broker deletes is stored: as a job, one for each message id, or as a dead letter with its body.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from holdfast.core.messages.broker_message import JSON
from holdfast.core.messages.dead_message import CONSUME
from tests.simulation.message_jobs import HANDLE, QUEUE, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.core.messages.broker_message import IncomingMessage
    from tests.simulation.dead_letter_oracle import Jobs
    from tests.simulation.files import Tables

_INBOX = "SELECT message_id, job_id FROM holdfast_inbox_messages"
_PAYLOADS = "SELECT job_id, args FROM holdfast_payloads"


class InboxOracle:
    """Watches what is received."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.sent: list[bytes] = []
        """The requests that another system has sent."""
        self._report = report
        self._inbox: dict[str, str | None] = {}
        self._args: dict[str, str] = {}
        self._handled: dict[str, tuple[str, int]] = {}
        """The job of each request, and the number that it was asked for with."""
        self._refused: set[str] = set()
        """The bodies that became dead letters."""

    def complaints(self, tables: Tables, after: Jobs) -> Iterator[str]:
        """Check all that has changed: a request has one job, which is written with its inbox row."""
        before, known = self._inbox, self._args
        self._inbox, self._args = tables.read(_INBOX, dict), tables.read(_PAYLOADS, dict)
        if self._args is not known:
            for job_id in self._args.keys() - known.keys():
                yield from self._new_job(job_id, after)
        if self._inbox is not before:
            for message_id, stands in self._inbox.items():
                if before.get(message_id, "none") == stands:
                    continue
                if stands is None or stands not in after.rows:
                    yield f"request {message_id} is in the inbox, and has no job {stands}"
                if message_id in before:
                    yield f"request {message_id} changed its job from {before[message_id]} to {stands}"
            for gone in before.keys() - self._inbox.keys():
                yield f"request {gone} is not in the inbox any more"

    def _new_job(self, job_id: str, after: Jobs) -> Iterator[str]:
        job = after.rows.get(job_id)
        if job is None:
            return
        args: dict[str, Any] = json.loads(self._args[job_id])
        if job.name == CONSUME:
            self._refused.add(args["body"])
        elif job.name == HANDLE:
            earlier = self._handled.setdefault(args["serial"], (job_id, args["number"]))
            if earlier[0] != job_id:
                yield f"request {args['serial']} asked for the jobs {earlier[0]} and {job_id}"
            if args["serial"] not in self._inbox:
                yield f"job {job_id} was made of request {args['serial']}, which is not in the inbox"

    def acknowledges(self, message: IncomingMessage) -> None:
        """Check a message as it is acknowledged: it is stored, and what it says is not forgotten."""
        request = _read(message)
        body = message.body.decode()
        if request is None:
            if body not in self._refused:
                self._report(
                    f"a message that cannot be read is acknowledged without a dead letter: {message}"
                )
            return
        handled = self._handled.get(request.serial)
        if request.serial not in self._inbox or handled is None:
            self._report(f"a request is acknowledged, and not stored: {message}")
        elif handled[1] != request.number and body not in self._refused:
            self._report(
                f"another request under the same id is acknowledged without a dead letter: {message}"
            )
        elif handled[1] == request.number and body in self._refused:
            self._report(f"a request that says the same again became a dead letter: {message}")


def _read(message: IncomingMessage) -> Request | None:
    if message.content_type != JSON or message.queue != QUEUE:
        return None
    try:
        return Request.model_validate_json(message.body)
    except ValidationError:
        return None
