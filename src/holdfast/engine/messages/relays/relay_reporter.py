"""The relay reporter: it logs and counts what became of messages, once the store has written it."""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Any, assert_never

from holdfast.core.messages.outbox import MessageChange
from holdfast.engine.messages.relays.batch_publisher import MessageOutcome
from holdfast.engine.runtime import Runtime


class RelayReporter:
    """Reports written batches: log lines, and metrics summed over the batch."""

    def __init__(self, relay: str, runtime: Runtime) -> None:
        self._relay = relay
        self._logger = runtime.logger
        self._metrics = runtime.metrics

    def report(self, outcomes: Sequence[MessageOutcome], *, lost: Set[int]) -> None:
        """Report a batch that was written, but for the partitions that were *lost* to another relay."""
        counts: Counter[str] = Counter()
        for outcome in outcomes:
            if outcome.message.partition in lost:
                counts["fenced"] += 1
                self._logger.warning("write fenced", **_fields(outcome), relay=self._relay)
            else:
                self._report(outcome, counts)
        for name, amount in counts.items():
            self._metrics.count(name, amount)

    def _report(self, outcome: MessageOutcome, counts: Counter[str]) -> None:
        transition, attempt = outcome.transition, outcome.message.retry_count + 1
        match transition.change:
            case MessageChange.PUBLISHED:
                counts["messages_published"] += 1
                if self._logger.verbose:
                    self._logger.debug("message published", **_fields(outcome))
            case MessageChange.RETRIED:
                counts["message_retries"] += 1
                delay = None if transition.delay is None else round(transition.delay.total_seconds() * 1000)
                self._logger.info(
                    "message retry scheduled",
                    **_fields(outcome),
                    attempt=attempt,
                    delay_ms=delay,
                    message=transition.error,
                )
            case MessageChange.FAILED:
                counts["messages_failed"] += 1
                self._logger.warning(
                    "message failed", **_fields(outcome), attempt=attempt, message=transition.error
                )
            case MessageChange.HELD | MessageChange.BLOCKED:
                if self._logger.verbose:
                    self._logger.debug("message held", **_fields(outcome), held_by=transition.held_by)
            case _:
                assert_never(transition.change)


def _fields(outcome: MessageOutcome) -> dict[str, Any]:
    message = outcome.message
    return {
        "outbox_id": message.id,
        "message_type": message.message_type,
        "aggregate_type": message.aggregate_type,
        "aggregate_id": message.aggregate_id,
        "route": str(outcome.route),
    }
