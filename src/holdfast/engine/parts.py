"""What the engine is put together from."""

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.core.classify import Classifier
from holdfast.core.jobs import Claim
from holdfast.core.payload import fingerprint
from holdfast.core.redaction import Redactor
from holdfast.engine.options import LetterOptions
from holdfast.engine.registry import Registry
from holdfast.ports import Clock, Dice, Executor, Ids, Journal, Metrics, Store, Tracer, Watchdog


@dataclass(frozen=True, slots=True)
class Parts:
    """The ports and rules that everything in one process shares."""

    store: Store
    registry: Registry
    classifier: Classifier
    clock: Clock
    dice: Dice
    ids: Ids
    executor: Executor
    journal: Journal
    metrics: Metrics
    tracer: Tracer | None = None
    watchdog: Watchdog | None = None
    """What extends leases while the event loop is blocked; nothing does where time is simulated."""
    fingerprint: Callable[[str], str] = fingerprint
    """By which two texts are known to be the same."""
    redactor: Redactor = field(default_factory=Redactor)
    letters: LetterOptions = field(default_factory=LetterOptions)
    bind_job: Callable[[Claim], None] | None = None
    """Called before the function of a job runs, in its context: it adds the job to what the function logs."""
    development: bool = False
    """Whether a developer watches: each completed job has a line at info, and each failure its stack."""

    def describe(self, error: BaseException) -> str:
        """Say what went wrong, without what nobody should read."""
        return self.classifier.describe(error)
