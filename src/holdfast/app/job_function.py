"""Jobs: functions whose calls are stored before they run."""

import asyncio
import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from holdfast.aio.coroutines import mark_async
from holdfast.app.current import next_key, trace_here
from holdfast.app.job_handle import JobHandle
from holdfast.core.durations import LONGEST, Duration, duration, instant_in_utc
from holdfast.core.errors import ConfigError, PayloadInvalid, SubmitError
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.core.names import LONGEST_NAME, is_name
from holdfast.engine.execution.context import CURRENT
from holdfast.engine.registry import JobSpec

if TYPE_CHECKING:
    from holdfast.app.holdfast import Holdfast

P = ParamSpec("P")
R = TypeVar("R")

PART = 4_000


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """How one submission differs from the job's declaration."""

    key: str | None = None
    subject: str | None = None
    version: int | None = None
    rerun: bool = False
    strict_keys: bool | None = None
    owner: str = ""
    queue: str | None = None
    priority: int | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    deadline: timedelta | None = None
    deadline_at: datetime | None = None
    within: Any = None

    @property
    def unique(self) -> bool:
        """Whether the submission may return an earlier job."""
        return self.key is not None or self.subject is not None

    def over(self, earlier: "SubmitOptions") -> "SubmitOptions":
        """Return *earlier* with the options that are set here."""
        here = {field.name: getattr(self, field.name) for field in fields(self)}
        unset = {field.name: field.default for field in fields(self)}
        return replace(earlier, **{name: value for name, value in here.items() if value is not unset[name]})


class JobFunction(Generic[P, R]):
    """A job. `submit` has the signature of the function; calling it runs the function directly, without a job."""

    def __init__(self, hold: "Holdfast", spec: JobSpec, *, options: SubmitOptions = SubmitOptions()) -> None:
        self._hold = hold
        self._options = options
        self.spec = spec
        self.name = spec.name
        self._queue = options.queue or spec.queue
        self._priority = spec.priority if options.priority is None else options.priority
        self._deadline = None if options.deadline_at else options.deadline or spec.deadline
        self._announces = spec.announces
        self._strict_keys = hold.strict_keys if options.strict_keys is None else options.strict_keys
        update_wrapper(self, spec.function)
        if spec.is_async:
            mark_async(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.spec.function(*args, **kwargs)

    def options(
        self,
        *,
        key: str | None = None,
        subject: str | None = None,
        version: int | None = None,
        rerun: bool = False,
        strict_keys: bool | None = None,
        owner: str = "",
        queue: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        deadline: Duration | None = None,
        deadline_at: datetime | None = None,
        within: Any = None,
    ) -> "JobFunction[P, R]":
        """Return the same job with options for its submissions, in addition to those it has.

        *key*: a second submission with it returns the first job. *subject* and *version*: a version
        runs once; a higher one runs with *rerun*. *owner*: the owner of the job. *delay* or *run_at*: the
        earliest start. *deadline*: the time from submission by which the job must have ended, else it fails;
        *deadline_at*: the same as an instant, and a job that is submitted after it has timed out and is not run.
        *within*: a connection in whose transaction the job is stored.
        """
        made = SubmitOptions(
            key=_word(key, "key"),
            subject=_word(subject, "subject"),
            version=_version(version),
            rerun=rerun,
            strict_keys=strict_keys,
            owner=_word(owner or None, "owner") or "",
            queue=_word(queue, "queue"),
            priority=_priority(priority),
            delay=None if delay is None else _length(delay, "delay"),
            run_at=_instant(run_at, "run_at"),
            deadline=checked_deadline(deadline),
            deadline_at=_instant(deadline_at, "deadline_at"),
            within=within,
        ).over(self._options)
        _refuse_contradictions(made)
        return JobFunction(self._hold, self.spec, options=made)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Store a call of the function as a job. When this returns, the job is on disk.

        Raises `PayloadInvalid` for arguments that the function does not accept or that cannot be
        stored, `KeyReused`, `VersionRefused`, or `StoreUnavailable` if the store did not answer in
        time: then the outcome is unknown, and a submission with the same key is safe.
        """
        return await self._submit_text(self.spec.signature.dump_args(args, kwargs))

    async def _submit_text(self, text: str) -> JobHandle[R]:
        batch = [self._submission(text, self._trace())]
        [handle] = self._handles(await self._hold._submit(batch, self._options.within))
        return handle

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Do what `submit` does, for code without an event loop: block until it is done.

        With `within=` this takes place in the calling thread, on the plain connection given.
        """
        return self._submit_text_sync(self.spec.signature.dump_args(args, kwargs))

    def _submit_text_sync(self, text: str) -> JobHandle[R]:
        [handle] = self._handles(self._stored([self._submission(text, self._trace())], "submit"))
        return handle

    def call(self, *args: P.args, **kwargs: P.kwargs) -> "JobCall[R]":
        """Return a call of the function, with the options that this has; nothing is stored.

        Raises `PayloadInvalid` for arguments that the function does not accept or that cannot be stored.
        """
        return JobCall(self, self.spec.signature.dump_args(args, kwargs))

    async def submit_many(self, calls: Iterable[Sequence[Any]]) -> list[JobHandle[R]]:
        """Store many calls, each given as its positional arguments, in as few writes as possible.

        All of them are checked before any is stored; an error names the item. A long list is written in parts,
        concurrently; after `StoreUnavailable` some of them may be stored.
        """
        texts = self._texts(calls)
        if len(texts) <= PART or self._options.within is not None:
            return await self._submit_texts(texts)
        return await self._submit_in_parts(texts)

    def submit_many_sync(self, calls: Iterable[Sequence[Any]]) -> list[JobHandle[R]]:
        """Do what `submit_many` does, for code without an event loop: block until it is done."""
        texts = self._texts(calls)
        trace = self._trace()
        with _collecting_later():
            batch = [self._submission(text, trace) for text in texts]
        parts = [batch[start : start + PART] for start in range(0, len(batch), PART)]
        return [handle for part in parts for handle in self._handles(self._stored(part, "submit_many"))]

    def _texts(self, calls: Iterable[Sequence[Any]]) -> list[str]:
        if self._options.unique:
            raise PayloadInvalid("a key or a subject identifies one job; submit such jobs one by one")
        with _collecting_later():
            return [self._text(index, call) for index, call in enumerate(calls)]

    def _text(self, index: int, call: object) -> str:
        try:
            return self.spec.signature.dump_args(_arguments(call), {})
        except SubmitError as error:
            raise type(error)(f"item {index} of submit_many: {error}") from None

    async def _submit_in_parts(self, texts: list[str]) -> list[JobHandle[R]]:
        """Write one part while the next is prepared: the database and this process work concurrently."""
        writing = []
        for start in range(0, len(texts), PART):
            part = self._submit_texts(texts[start : start + PART])
            writing.append(asyncio.create_task(part, name=f"holdfast submit {self.name} {start}"))
            await asyncio.sleep(0)  # it is being written before the next part is prepared
            if len(writing) > 1:
                await asyncio.wait([writing[-2]])  # more than two would only compete
        await asyncio.wait(writing)
        return [handle for part in writing for handle in part.result()]

    async def _submit_texts(self, texts: list[str]) -> list[JobHandle[R]]:
        trace = self._trace()
        with _collecting_later():
            batch = [self._submission(text, trace) for text in texts]
        return self._handles(await self._hold._submit(batch, self._options.within))

    def _stored(self, batch: list[Submission], verb: str) -> list[Receipt]:
        """Store *batch* from code without an event loop."""
        if self._options.within is not None:
            return self._hold._submit_here(batch, self._options.within)
        return self._hold._portal.run(verb, lambda hold: hold._submit(batch))

    def _handles(self, receipts: Iterable[Receipt]) -> list[JobHandle[R]]:
        return [JobHandle(self._hold, receipt, name=self.name) for receipt in receipts]

    def _submission(self, text: str, trace: str | None = None) -> Submission:
        options = self._options
        key, fingerprint = self._identity(text)
        # By position: a bulk submission makes one of these per job, and names double the cost.
        return Submission(
            self._hold._new_id(),
            self.name,
            self._queue,
            options.owner,
            text,
            self._priority,
            options.delay,
            options.run_at,
            key,
            options.subject,
            options.version,
            options.rerun,
            self._strict_keys,
            fingerprint,
            trace,
            self._deadline,
            options.deadline_at,
            self._announces,
        )

    def _identity(self, text: str) -> tuple[str | None, str | None]:
        """Return the key of the submission and the fingerprint of its arguments; outside a job, mostly neither is needed.

        Inside a job every submission has a key, so that another attempt does not repeat it.
        """
        options = self._options
        if not options.unique and CURRENT.get() is None:
            return None, None
        fingerprint = self._hold.runtime.fingerprint(text)
        return options.key if options.unique else next_key(self.name, options.owner, fingerprint), fingerprint

    def _trace(self) -> str | None:
        return trace_here(self._hold.runtime.tracer)

    def _follows(self, job_id: str, result: Any) -> Submission:
        """Return the submission that follows an accepted late result; its key makes it unique."""
        made = self._submission(self.spec.signature.dump_args((job_id, result), {}), self._trace())
        text = made.args
        return made._replace(key=f"late:{job_id}", fingerprint=self._hold.runtime.fingerprint(text))

    def when_late_is_accepted(self, job: "JobFunction[[str, R], Any]") -> "JobFunction[[str, R], Any]":
        """Submit *job* with the id and the result of each job whose late result is accepted.

        Usable as a decorator above `@hold.job(...)`. It is stored in the transaction of the acceptance.
        """
        if self.spec.on_accept:
            raise ConfigError(
                f"job {self.name!r} already has a job that follows an acceptance: {self.spec.on_accept[0].name!r}"
            )
        self.spec.on_accept.append(job)
        return job


@dataclass(frozen=True, slots=True)
class JobCall(Generic[R]):
    """A call of a job with checked arguments: `job.call(...)`. A consumer returns it for the message that it was given."""

    job: JobFunction[..., R]
    args: str
    """The arguments as strict JSON."""

    async def submit(self) -> JobHandle[R]:
        """Store the call as a job, as `job.submit(...)` does."""
        return await self.job._submit_text(self.args)

    def submit_sync(self) -> JobHandle[R]:
        """Do what `submit` does, for code without an event loop: block until it is done."""
        return self.job._submit_text_sync(self.args)

    def submission_of(self, message_id: str, *, fingerprint: str, trace: str | None) -> Submission:
        """Return the submission for a message, whose id is its key. Raises `ConfigError` if the call has a key."""
        options = self.job._options
        if options.key is not None or options.within is not None:
            raise ConfigError(
                f"the call of job {self.job.name!r} has key= or within=, and a consumer returned it; leave both out: "
                "the message's id is its key, and it is stored with the message"
            )
        made = self.job._submission(self.args, trace)
        return made._replace(key=message_id, fingerprint=fingerprint, strict_keys=False)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Disable the garbage collector while many values are created: it would traverse all of them repeatedly."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _arguments(call: object) -> tuple[Any, ...]:
    """Return the positional arguments of one call; a string or a mapping is refused, as it would be iterated."""
    if isinstance(call, list | tuple):
        return tuple(call)
    if not isinstance(call, Sequence) or isinstance(call, str | bytes | bytearray):
        raise PayloadInvalid(
            f"a call must be a tuple or list of its arguments, not a {type(call).__name__}; "
            "write (argument,) for a single one"
        )
    return tuple(call)


def checked_deadline(length: Duration | None) -> timedelta | None:
    """Parse a deadline. Raises `PayloadInvalid` if it is not positive or too long."""
    if length is None:
        return None
    deadline = _length(length, "deadline")
    if not deadline:
        raise PayloadInvalid(f"deadline must be positive and at most {LONGEST.days:,} days")
    return deadline


def _length(length: Duration, what: str) -> timedelta:
    if isinstance(length, timedelta) and length > LONGEST:
        raise PayloadInvalid(f"{what} must be at most {LONGEST.days:,} days")
    return duration(length)


def _word(text: str | None, what: str) -> str | None:
    if text is not None and (not text or not is_name(text)):
        # With an empty key, all requests that have no key would be one job.
        raise PayloadInvalid(f"{what} must be printable text of 1 to {LONGEST_NAME} characters")
    return text


def _priority(priority: int | None) -> int | None:
    if priority is not None and not _is_whole(priority, bits=16):
        raise PayloadInvalid("priority must be between -32768 and 32767; the highest runs first")
    return priority


def _version(version: int | None) -> int | None:
    if version is not None and not _is_whole(version, bits=64):
        raise PayloadInvalid("version must be a whole number of at most 64 bits; the highest is the newest")
    return version


def _is_whole(number: object, *, bits: int) -> bool:
    return type(number) is int and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)


def _instant(instant: datetime | None, what: str) -> datetime | None:
    try:
        return None if instant is None else instant_in_utc(instant)
    except ValueError as error:
        raise PayloadInvalid(f"{what} {error}") from None


def _refuse_contradictions(options: SubmitOptions) -> None:
    if (options.subject is None) != (options.version is None):
        raise PayloadInvalid("subject and version belong together; give both or neither")
    if options.rerun and options.subject is None:
        raise PayloadInvalid("rerun needs a subject and a version")
    if options.delay is not None and options.run_at is not None:
        raise PayloadInvalid("delay and run_at exclude each other; give one of them")
    if options.deadline is not None and options.deadline_at is not None:
        raise PayloadInvalid("deadline and deadline_at exclude each other; give one of them")
