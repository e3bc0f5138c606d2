"""Every exception of the library.

HoldfastError
 |
 |   raised by a handler, to state what its failure means
 +-- Retryable
 |    +-- BadResponse
 +-- Permanent
 |    +-- MediaInvalid
 |    +-- PolicyRejected
 |
 |   raised by a submission
 +-- SubmitError
 |    +-- PayloadInvalid
 |    +-- PayloadTooLarge
 |    +-- KeyReused
 |    +-- VersionRefused
 |
 |   raised by a call about a job
 +-- JobNotFound
 |    +-- LetterNotFound
 +-- MessageNotFound
 +-- JobFailed
 +-- JobCancelled
 +-- ResultTimeout (also a TimeoutError)
 +-- StateRefused
 |    +-- StepRefused
 |    +-- PlanStale
 |
 |   raised inside a job function
 +-- SignalTimeout (also a TimeoutError)
 +-- StageFailed
 +-- StageMismatch
 |
 |   raised by setup
 +-- ConfigError
 |    +-- PayloadEncrypted
 +-- WithinUnsupported
 +-- StoreUnavailable
 |    +-- StoreReadOnly
 +-- ArchiveUnavailable
 +-- ArchiveMissing
 +-- ArchiveDamaged
 +-- BrokerError
 |    +-- BrokerUnavailable
 |    +-- RouteRefused
 |    |    +-- RouteFull
 |    +-- MessageRefused
 +-- SchemaError
      +-- SchemaMissing
      +-- SchemaTooOld
      +-- SchemaTooNew

What a handler raises never reaches the worker: it becomes a `Failure`, which is data.
"""

from dataclasses import replace
from datetime import timedelta

from holdfast.core.durations import LONGEST, Duration, duration
from holdfast.core.failures.failure import ErrorClass, Failure, PublicCode


class HoldfastError(Exception):
    """The root of the tree: catch it to catch all that the library raises."""


class Retryable(HoldfastError):
    """Raise it in a handler when another attempt may succeed.

    *after* is the least time to wait: seconds, text such as `"10s"`, or a `timedelta`; nothing means none. Raises
    `ValueError` for anything else. The attempts of the job's policy still bound the retries, and its ceiling the wait:
    a `timedelta` of any size may be passed on as a service asked for it.

    >>> Retryable("the index is being rebuilt", after=30).wait
    datetime.timedelta(seconds=30)
    """

    default_class = ErrorClass.UNKNOWN

    def __init__(
        self,
        message: str = "",
        *,
        error_class: ErrorClass | None = None,
        after: Duration | None = None,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class or self.default_class
        if isinstance(after, timedelta):
            after = min(after, LONGEST)
        self.wait = None if after is None else duration(after) or None

    def as_failure(self) -> Failure:
        """Return the failure that this says; the classifier adds message and stack."""
        return replace(Failure.of(self.error_class, ""), retryable=True, wait=self.wait)


class BadResponse(Retryable):
    """Raise it when a service answered with success, but with nothing that can be used.

    It is retried twice, since a model that answered badly may do better; then look at the prompt or the parser.
    """

    default_class = ErrorClass.BAD_RESPONSE


class Permanent(HoldfastError):
    """Raise it in a handler when no further attempt can succeed: the job fails at once.

    Correct the data or the code, then retry the job.
    """

    default_class = ErrorClass.UNKNOWN

    def __init__(
        self,
        message: str = "",
        *,
        error_class: ErrorClass | None = None,
        code: PublicCode | None = None,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class or self.default_class
        self.code = code

    def as_failure(self) -> Failure:
        """Return the failure that this says; the classifier adds message and stack."""
        failure = replace(Failure.of(self.error_class, ""), retryable=False)
        return failure if self.code is None else replace(failure, code=self.code)


class MediaInvalid(Permanent):
    """Raise it when a file is not what it should be: audio that cannot be decoded, a file that is not a PDF.

    Pass `code=PublicCode.NOT_PDF` for the latter. The owner has to send another file.
    """

    default_class = ErrorClass.MEDIA_INVALID


class PolicyRejected(Permanent):
    """Raise it when a rule forbids the work: moderation, an explicit deny.

    A person decides whether the rule was right; a retry would meet it again.
    """

    default_class = ErrorClass.POLICY_REJECTED


class SubmitError(HoldfastError):
    """The submission was refused, and no job was made. Correct the call and submit again."""


class PayloadInvalid(SubmitError):
    """An argument does not fit the function, or cannot be stored as strict JSON.

    The message names the place. Correct the argument, or the annotation.
    """


class PayloadTooLarge(SubmitError):
    """The arguments, or a result, exceed the size that is stored.

    Keep the data elsewhere and pass its address.
    """


class KeyReused(SubmitError):
    """The idempotency key belongs to a job with another payload, and keys are strict.

    Choose a new key, or request a rerun under a higher version.
    """


class VersionRefused(SubmitError):
    """The subject already has a job of a higher version, or a rerun was not requested.

    Submit a version above the latest, with `rerun=True`.
    """


class JobNotFound(HoldfastError):
    """There is no such job for this owner: never submitted, purged, or of another owner."""


class MessageNotFound(HoldfastError):
    """There is no message with this id in the outbox: it was published, and deleted after its retention, or never stored."""


class JobFailed(HoldfastError):
    """The job ended without a result. `failure` says why; once that is repaired, retry or replay the job."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return f"the job failed with {self.failure.error_class}: {self.failure.message}"


class JobCancelled(HoldfastError):
    """The job was cancelled before it had a result. Submit it again if its result is still needed."""


class ResultTimeout(HoldfastError, TimeoutError):
    """The job had no result within the timeout of the caller.

    The job goes on: ask for its result again, with a longer timeout. Inside another job `failure` is set: the timeout
    is stored there, every attempt gets the same exception, and if it is not caught, the job fails.
    """

    def __init__(self, message: str = "", *, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class SignalTimeout(HoldfastError, TimeoutError):
    """No signal came within the timeout of the job, and every attempt gets the same exception.

    Catch it around the wait to go on without the signal; if it is not caught, the job fails. A retried job waits again.
    """


class StateRefused(HoldfastError):
    """The job's state does not allow the requested change, and nothing was changed.

    Read the job again: another caller may have changed it.
    """


class StageFailed(HoldfastError):
    """A stage has failed for good. A job function may catch it to go on without that stage.

    If it is not caught, the job fails with the stage's `failure`.
    """

    def __init__(self, stage: str, failure: Failure) -> None:
        super().__init__(stage, failure)
        self.stage = stage
        self.failure = failure

    def __str__(self) -> str:
        return f"stage {self.stage!r} failed with {self.failure.error_class}: {self.failure.message}"


class StageMismatch(HoldfastError):
    """A stored stage does not match the call that the code makes now: the code has changed since it was stored.

    Give the changed stage another name or an explicit key, then retry the job.
    """


class ConfigError(HoldfastError):
    """A setting is missing or contradicts another. The message names it and what it may be."""


class PayloadEncrypted(ConfigError):
    """Arguments or a result are stored encoded, and this process has no codec, or not the key, to decode them.

    Give `Holdfast(codec=…)` the codec that they were written with, and call again. What is stored is unchanged.
    """


class WithinUnsupported(HoldfastError):
    """`within=` was given a connection in which the store cannot write.

    Pass an open transaction on the database that the store uses.
    """


class StoreUnavailable(HoldfastError):
    """The database could not be reached, or the connection was lost during an operation.

    Try again once it is back. A submission that met this may have been stored: repeat it with the same key.
    """


class StoreReadOnly(StoreUnavailable):
    """The database refuses writes. A worker retries until it accepts them, as during an outage.

    After a failover, wait or point the address at the primary; for a file, check the folder's permissions.
    """


class SchemaError(HoldfastError):
    """The tables in the database do not fit this version of the library."""


class SchemaMissing(SchemaError):
    """The database holds none of the library's tables yet. Apply the schema first."""


class SchemaTooOld(SchemaError):
    """The tables are older than this code needs. Apply the schema's migrations."""


class SchemaTooNew(SchemaError):
    """The tables no longer serve code as old as this. Upgrade the library."""


class LetterNotFound(JobNotFound):
    """There is no dead letter of that job, or not for this owner."""


class StepRefused(StateRefused):
    """The dead letter's state does not allow the step; the message says what comes first."""


class PlanStale(StateRefused):
    """The letters, the plan or the code have changed since the plan was made.

    Plan the replay again: the dry run shows what has changed.
    """


class ArchiveUnavailable(HoldfastError):
    """The archive could not be reached, or has no room. What was to be archived is still in the database.

    The message names the place. Repair it; the same can be archived again, whether or not it arrived.
    """


class ArchiveMissing(HoldfastError):
    """The archive holds nothing under that name. List its names, and check that it is the right archive."""


class ArchiveDamaged(HoldfastError):
    """An archived file was changed, or was encrypted with a key that is not configured.

    Nothing of it was used. Restore the file from a copy of the archive, or configure the key that it was encrypted with.
    """


class BrokerError(HoldfastError):
    """A broker did not take a message. It is still in the outbox."""


class BrokerUnavailable(BrokerError):
    """The broker cannot be reached, refuses more messages at present, or did not answer in time.

    It may have the message nevertheless. The relay publishes it again when the broker is back; nothing is spent.
    """


class RouteRefused(BrokerError):
    """The exchange or the queue is missing or forbidden, or no queue is bound for the message.

    All messages of this route would be refused. Create it, for example with `holdfast topology apply`, or change the
    declaration of the message type; a probe finds out that the route works again.
    """


class RouteFull(RouteRefused):
    """A queue of the route is full, or cannot store a message at present; other routes are taken.

    The relay blocks the route, and tries it every few seconds. Let the consumers of the queue catch up, or raise its limit.
    """


class MessageRefused(BrokerError):
    """The broker does not take this message, such as one that is too large; others of its route are taken."""
