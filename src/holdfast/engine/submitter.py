"""The submitter: concurrent submissions of one process share their inserts."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.aio.batcher import Batcher
from holdfast.core.errors import HoldfastError
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.engine.store_retry import StoreRetry
from holdfast.ports import Logger, Metrics, Store
from holdfast.ports.store import SubmissionRefusal

BATCH = 1_000
TIMEOUT = timedelta(seconds=30)


class Submitter:
    """Stores submissions durably, and returns a receipt for each: the new job, or the existing one."""

    def __init__(self, store: Store, store_retry: StoreRetry, *, logger: Logger, metrics: Metrics) -> None:
        self._store = store
        self._store_retry = store_retry
        self._logger = logger
        self._metrics = metrics
        self._plain: Batcher[Submission, Receipt | SubmissionRefusal] = Batcher(
            self._write_batch, limit=BATCH, name="holdfast submitter"
        )
        # Apart: a key that an open transaction holds is waited for, and submissions without keys do not wait with it.
        self._unique: Batcher[Submission, Receipt | SubmissionRefusal] = Batcher(
            self._write_batch, limit=BATCH, name="holdfast submitter of keys"
        )

    async def submit(self, submission: Submission) -> Receipt:
        """Store one job. Once this returns, no crash loses it."""
        batcher = self._unique if submission.unique else self._plain
        return self._receipt(submission, await batcher.ask_alone(submission))

    async def submit_many(self, batch: Sequence[Submission]) -> list[Receipt]:
        """Store many jobs, in as few statements as the store allows."""
        return self._receipts(batch, await self._write(batch))

    async def submit_within(self, connection: Any, batch: Sequence[Submission]) -> list[Receipt]:
        """Store jobs in the caller's own transaction: they exist once it commits."""
        return self._receipts(batch, await self._store.submit_within(connection, batch))

    async def drain(self) -> None:
        """Wait until what was submitted is stored."""
        await self._plain.drain()
        await self._unique.drain()

    async def _write_batch(self, batch: Sequence[Submission]) -> list[Receipt | SubmissionRefusal]:
        """Write submissions of unrelated callers: one that the store rejects fails alone."""
        try:
            return await self._write(batch)
        except HoldfastError:
            raise  # the store is unavailable, or has no tables: each would fail the same way
        except Exception:
            if len(batch) == 1:
                raise
        return [await self._write_alone(item) for item in batch]

    async def _write_alone(self, item: Submission) -> Receipt | SubmissionRefusal:
        try:
            # Again: an earlier try of the rejected batch may have been committed after all.
            [answer] = await self._write([item], again=True)
        except Exception as error:  # noqa: BLE001 - raised to the caller that submitted this
            return SubmissionRefusal(error)
        return answer

    async def _write(
        self, batch: Sequence[Submission], *, again: bool = False
    ) -> list[Receipt | SubmissionRefusal]:
        answers = await self._store_retry.call(
            lambda tries: self._store.submit(batch, again=again or tries > 0), within=TIMEOUT
        )
        self._metrics.count(
            "jobs_created", sum(isinstance(answer, Receipt) and not answer.existing for answer in answers)
        )
        return answers

    def _receipts(
        self, batch: Sequence[Submission], answers: Sequence[Receipt | SubmissionRefusal]
    ) -> list[Receipt]:
        return [
            answer
            if isinstance(answer, Receipt) and not answer.payload_differs
            else self._receipt(item, answer)
            for item, answer in zip(batch, answers, strict=True)
        ]

    def _receipt(self, submission: Submission, answer: Receipt | SubmissionRefusal) -> Receipt:
        if isinstance(answer, SubmissionRefusal):
            raise answer.error
        if answer.payload_differs:
            self._logger.warning(
                "key reused with another payload",
                job_id=answer.id,
                name=submission.name,
                queue=submission.queue,
                owner=submission.owner,
            )
        return answer
