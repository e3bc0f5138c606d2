"""The runtime: the dependencies that the modules of the engine share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.core.failures.classifier import Classifier
from holdfast.core.jobs.job import Claim
from holdfast.core.redaction import Redactor
from holdfast.core.strict_json import fingerprint
from holdfast.engine.options import LetterOptions
from holdfast.engine.registry import BrokerSpec, Registry
from holdfast.engine.store_retry import StoreRetry
from holdfast.ports import Broker, Clock, Executor, Ids, Logger, Metrics, Random, Store, Tracer, Watchdog


@dataclass(frozen=True, slots=True)
class Runtime:
    """The ports and rules that everything in one process shares."""

    store: Store
    registry: Registry
    classifier: Classifier
    clock: Clock
    random: Random
    ids: Ids
    executor: Executor
    logger: Logger
    metrics: Metrics
    tracer: Tracer | None = None
    watchdog: Watchdog | None = None
    """Runs the lease guard in a thread while the event loop may be blocked; `None` where time is simulated."""
    fingerprint: Callable[[str], str] = fingerprint
    """Hashes a text, to compare it with a stored one."""
    redactor: Redactor = field(default_factory=Redactor)
    letters: LetterOptions = field(default_factory=LetterOptions)
    open_broker: Callable[[BrokerSpec], Broker] | None = None
    """Makes the client of a declared broker; it connects when it is first used."""
    bind_job: Callable[[Claim], None] | None = None
    """Called before the function of a job, in its context: it binds the job to the log context."""
    development: bool = False
    """Development mode: each completed job is logged at info, and each failure with its stack."""

    @property
    def store_retry(self) -> StoreRetry:
        """Retries calls while the store is unavailable, by this clock and this source of random numbers."""
        return StoreRetry(self.clock, self.random)

    def describe(self, error: BaseException) -> str:
        """Return the message of an error, with secrets redacted."""
        return self.classifier.describe(error)
