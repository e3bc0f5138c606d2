"""What becomes of a batch of received messages, as a store finds out which of them it has."""

from collections.abc import Mapping, Sequence

from holdfast.core.jobs.job import Receipt
from holdfast.core.jobs.states import Status
from holdfast.core.messages.inbox import EarlierMessage, InboxAnswer, InboxItem, InboxOutcome, compare


class Reception:
    """Collects what a store found and wrote, and answers each message as if they had been received one by one.

    Of several messages with one id in a batch, the first decides; the others are repetitions of it.
    """

    def __init__(self, batch: Sequence[InboxItem]) -> None:
        self._batch = batch
        self._first = {item.message_id: item for item in reversed(batch)}
        self._earlier: dict[str, EarlierMessage] = {}
        self._new: set[int] = set()
        self._failed: dict[str, Exception] = {}
        self.jobs: dict[str, str] = {}
        """The jobs that the new rows have yet to name, by message id: made since, or earlier ones with the same key."""

    @property
    def items(self) -> list[InboxItem]:
        """The first message of each id, in the order of the ids, in which every transaction locks them."""
        return [self._first[message_id] for message_id in sorted(self._first)]

    def found(self, message_id: str, earlier: EarlierMessage) -> None:
        """Note that the inbox has a message with this id."""
        self._earlier[message_id] = earlier

    def recorded(self, item: InboxItem) -> None:
        """Note that *item* is new, and was written with its job or its dead letter."""
        first = self._first[item.message_id]
        self._new.add(id(first))
        self._earlier[item.message_id] = EarlierMessage(item.fingerprint, item.job_id)
        if item.job_id is not None and item.job_id != first.job_id:
            self.jobs[item.message_id] = item.job_id

    def submitted(self, item: InboxItem, receipt: Receipt) -> None:
        """Note which job stands for *item*: its own, or an earlier one that has its key."""
        if not receipt.existing:
            self.recorded(item)
        elif receipt.payload_differs:
            self._earlier[item.message_id] = EarlierMessage("", receipt.id)
        else:
            self._earlier[item.message_id] = EarlierMessage(item.fingerprint, receipt.id)
            self.jobs[item.message_id] = receipt.id

    def failed(self, item: InboxItem, error: Exception) -> None:
        """Note that nothing of *item* was written, because of *error*."""
        self._failed[item.message_id] = error

    @property
    def unrecorded(self) -> list[str]:
        """The ids whose new rows must not stay: the message failed, or contradicts the job that has its key."""
        contradicted = [key for key, earlier in self._earlier.items() if not earlier.fingerprint]
        return sorted({*self._failed, *contradicted})

    @property
    def repeated(self) -> dict[str, str]:
        """The jobs of repeated messages, by message id: the answers name their states."""
        found = ((item.message_id, self._decide(item)) for item in self._batch)
        return {
            message_id: answer.job_id
            for message_id, answer in found
            if answer.outcome is InboxOutcome.REPEATED and answer.job_id is not None
        }

    def answers(self, states: Mapping[str, Status]) -> list[InboxAnswer]:
        """Answer each message of the batch, in order; *states* are those of the `repeated` jobs."""
        return [
            answer._replace(status=states.get(answer.job_id or ""))
            if answer.outcome is InboxOutcome.REPEATED
            else answer
            for answer in map(self._decide, self._batch)
        ]

    def _decide(self, item: InboxItem) -> InboxAnswer:
        error = self._failed.get(item.message_id)
        if error is not None:
            return InboxAnswer(InboxOutcome.FAILED, error=error)
        earlier = self._earlier[item.message_id]
        if id(item) in self._new:
            return InboxAnswer(InboxOutcome.NEW, earlier.job_id)
        return compare(item, earlier)
