"""The selection of dead letters by an operator, and the record of the steps that are taken with them."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple

from holdfast.core.dead_letters.letter import Letter, LetterFilter, Step
from holdfast.engine.dead_letters.preflight import Preflight
from holdfast.engine.operations.store_access import OperatorService, StoreAccess
from holdfast.engine.runtime import Runtime

PAGE = 500
"""Letters that are read or updated together."""

JobIdOrFilter = str | LetterFilter
"""One letter, by its job's id, or all that a filter selects."""


class BulkResult(NamedTuple):
    """The job ids of the letters that took a step, and why others were refused."""

    done: list[str]
    refused: dict[str, str]


class LetterSelection(OperatorService):
    """Reads the letters that an operator selects, and reports the steps that were taken with them."""

    def __init__(self, runtime: Runtime, access: StoreAccess) -> None:
        super().__init__(runtime, access)
        self._preflight = Preflight(runtime)

    async def _pages(self, selection: JobIdOrFilter) -> AsyncIterator[list[Letter]]:
        """Yield the selected letters, a page at a time."""
        if isinstance(selection, str):
            yield [await self._store.dead_letters.get(selection)]
            return
        left, before = math.inf if selection.limit is None else selection.limit, selection.before
        while left > 0:
            page = await self._store.dead_letters.find(
                replace(selection, limit=int(min(PAGE, left)), before=before)
            )
            if not page:
                return
            yield page
            left, before = left - len(page), page[-1].job_id

    def _redacted(self, step: Step) -> Step:
        """Redact the texts of a step: operators paste the messages of services."""
        redact = self._runtime.redactor
        return replace(
            step,
            reason=redact(step.reason),
            evidence=step.evidence and redact(step.evidence),
            safe=step.safe and redact(step.safe),
            notes=step.notes and redact(step.notes),
        )

    def _report(self, step: Step, first: Letter | None, *, count: int) -> None:
        if first is None:
            return
        self._runtime.metrics.count("letter_steps", count, state=step.to.value)
        self._runtime.logger.info(
            "dead letters updated",
            state=step.to.value,
            letters=count,
            job_id=first.job_id,
            name=first.name,
            queue=first.queue,
            actor=step.actor,
            reason=step.reason,
        )


def changed_meanwhile(job_id: str) -> str:
    """Return why a step was refused whose letter has changed since it was read."""
    return f"the dead letter of job {job_id} has just changed; look at it again"
