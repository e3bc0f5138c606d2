"""Submissions of one process share their inserts."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.jobs import Receipt, Submission
from holdfast.engine.gathering import Gatherer
from holdfast.engine.patience import Patience
from holdfast.ports import Journal, Metrics, Store
from holdfast.ports.store import Refusal

BATCH = 1_000
PATIENCE = timedelta(seconds=30)


class Submitter:
    """Stores submissions durably, and says which job stands for each."""

    def __init__(self, store: Store, patience: Patience, *, journal: Journal, metrics: Metrics) -> None:
        self._store = store
        self._patience = patience
        self._journal = journal
        self._metrics = metrics
        self._plain: Gatherer[Submission, Receipt | Refusal] = Gatherer(
            self._write_gathered, limit=BATCH, name="holdfast submitter"
        )
        # Apart: a key that somebody's open transaction holds is waited for, and the others need not wait along.
        self._unique: Gatherer[Submission, Receipt | Refusal] = Gatherer(
            self._write_gathered, limit=BATCH, name="holdfast submitter of keys"
        )

    async def submit(self, submission: Submission) -> Receipt:
        """Store one job. Once this returns, no crash loses it."""
        gatherer = self._unique if submission.unique else self._plain
        return self._told(submission, await gatherer.ask_alone(submission))

    async def submit_many(self, batch: Sequence[Submission]) -> list[Receipt]:
        """Store many jobs, in as few statements as the store allows."""
        return self._all_told(batch, await self._write(batch))

    async def submit_within(self, connection: Any, batch: Sequence[Submission]) -> list[Receipt]:
        """Store jobs in the caller's own transaction: they exist when it commits."""
        return self._all_told(batch, await self._store.submit_within(connection, batch))

    async def drain(self) -> None:
        """Wait until what was submitted is stored."""
        await self._plain.drain()
        await self._unique.drain()

    async def _write_gathered(self, batch: Sequence[Submission]) -> list[Receipt | Refusal]:
        """Write submissions of callers who know nothing of each other: one that the store cannot take fails alone."""
        try:
            return await self._write(batch)
        except HoldfastError:
            raise  # the store is away, or has no tables: each of them would meet the same
        except Exception:
            if len(batch) == 1:
                raise
        return [await self._write_alone(item) for item in batch]

    async def _write_alone(self, item: Submission) -> Receipt | Refusal:
        try:
            # Again: of the batch that was refused, an earlier try may have arrived after all.
            [answer] = await self._write([item], again=True)
        except Exception as error:  # noqa: BLE001 - it belongs to the one who submitted this
            return Refusal(error)
        return answer

    async def _write(self, batch: Sequence[Submission], *, again: bool = False) -> list[Receipt | Refusal]:
        answers = await self._patience.insist(
            lambda tries: self._store.submit(batch, again=again or tries > 0), within=PATIENCE
        )
        self._metrics.count("jobs_created", sum(map(_is_new, answers)))
        return answers

    def _all_told(self, batch: Sequence[Submission], answers: Sequence[Receipt | Refusal]) -> list[Receipt]:
        return [
            answer if isinstance(answer, Receipt) and not answer.payload_differs else self._told(item, answer)
            for item, answer in zip(batch, answers, strict=True)
        ]

    def _told(self, submission: Submission, answer: Receipt | Refusal) -> Receipt:
        if isinstance(answer, Refusal):
            raise answer.error
        if answer.payload_differs:
            self._journal.warning(
                "key reused with another payload",
                job_id=answer.id,
                name=submission.name,
                queue=submission.queue,
                owner=submission.owner,
            )
        return answer


def _is_new(answer: Receipt | Refusal) -> bool:
    return isinstance(answer, Receipt) and not answer.existing
