"""From an exception to a `Failure`: the one place where errors are classified.

The exception and what it was raised from are examined from the outside in. A user's rules apply first, then the
library's own exceptions, then the table in `rules`. An unknown exception is `UNKNOWN`, which is retried.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from holdfast.core.errors import JobFailed, Permanent, ResultTimeout, Retryable, StageFailed
from holdfast.core.failures import frames, message
from holdfast.core.failures.evidence import links, read, request_id
from holdfast.core.failures.failure import (
    ErrorClass,
    Failure,
    PublicCode,
    Scope,
    Sent,
    Verdict,
    fingerprint_of,
)
from holdfast.core.failures.retry_after import should_retry, wait_hint
from holdfast.core.failures.rules import TABLE, Rule
from holdfast.core.redaction import RedactionCache

_MOST_LINKS = 100
_LONGEST_REQUEST_ID = 200
_CERTAINTY = (Sent.NO, Sent.MAYBE, Sent.YES)

SHORT = 2_000
"""Characters that are redacted within a few milliseconds, 2.5 µs each."""

Renderer = Callable[[BaseException, Callable[[str], str]], str]
"""Renders an exception as text, given the function that redacts it."""


@dataclass(frozen=True, slots=True)
class Classification:
    """What an exception means, before its texts are rendered: that takes a thousand times as long.

    `source` is the exception whose text describes the failure: *error* itself, or one beneath it.
    """

    failure: Failure
    error: BaseException
    source: BaseException

    @property
    def is_long(self) -> bool:
        """Whether its texts take so long to render that an event loop should not wait for them."""
        return not self.failure.message and message.text_length(self.error) > SHORT

    @property
    def without_text(self) -> Failure:
        """The failure with the name of its exception instead of its text."""
        return (
            self.failure
            if self.failure.message
            else replace(self.failure, message=type(self.source).__name__)
        )


class Classifier:
    """Classifies exceptions by the library's table and by the rules of its user, which come first.

    *redact* is given the text of messages and stacks before it is cut to its place, and returns it without
    secrets. *read_source* reads the lines of source that a stack shows. Among the user's rules the first that fits
    decides.

    >>> from holdfast.core.failures.rules import rule
    >>> classifier = Classifier(rule("builtins.LookupError", error_class=ErrorClass.NOT_FOUND))
    >>> str(classifier.classify(KeyError("c1")).error_class)
    'NOT_FOUND'
    >>> str(Classifier().classify(KeyError("c1")).error_class)
    'BUG'
    """

    def __init__(
        self,
        *rules: Rule,
        redact: Callable[[str], str] = str,
        read_source: frames.SourceReader = frames.no_source,
    ) -> None:
        self._rules = rules
        self._redact = redact
        self._stack = partial(message.stack, read_source=read_source)

    def classify(self, error: BaseException, *, now: datetime | None = None) -> Failure:
        """Return what *error* means, with its texts. Never raises, for any exception.

        *now* is only needed to read a date for the next try in an answer that does not carry its own date.
        """
        return self.render(self.classify_without_text(error, now=now))

    def classify_without_text(self, error: BaseException, *, now: datetime | None = None) -> Classification:
        """Return what *error* means, without its texts. Never raises, and redacts nothing."""
        try:
            failure, source = _Search(self._rules, now).classify(error) or (_unknown(), error)
        except Exception:  # noqa: BLE001 - the end of an attempt must always be reported, even if reading the exception fails
            failure, source = _unknown(), error
        return Classification(failure, error, source)

    def render(self, classified: Classification) -> Failure:
        """Add message, stack and context. Never raises; may be called in any thread."""
        failure, error, source = classified.failure, classified.error, classified.source
        if failure.message:  # a stage's or another job's, which was rendered when it was met
            return failure
        redact = RedactionCache(self._redact)
        location = _rendered(_location, redact, source, error)
        return replace(
            failure,
            message=_rendered(message.one_line, redact, source) or type(source).__name__,
            stack=_rendered(self._stack, redact, error),
            fingerprint=fingerprint_of(failure.error_class, location),
            context=_without_empty(place=location, request_id=_rendered(_request_id, redact, error)),
        )

    def describe(self, error: BaseException) -> str:
        """Return the error as one redacted line."""
        classified = self.classify_without_text(error)
        return (
            classified.failure.message
            or _rendered(message.one_line, self._redact, classified.source)
            or type(error).__name__
        )


def _rendered(renderer: Renderer, redact: Callable[[str], str], *errors: BaseException) -> str:
    """Return the text of the first of *errors* for which *renderer* returns one."""
    try:
        return next(filter(None, (renderer(error, redact) for error in errors)), "")
    except Exception:  # noqa: BLE001 - text that cannot be redacted is dropped
        return ""


FailureAndSource = tuple[Failure, BaseException]
"""What a failure means, and the exception whose text describes it."""


class _Search:
    """One walk through an exception and what lies beneath it; each is examined once."""

    def __init__(self, rules: tuple[Rule, ...], now: datetime | None) -> None:
        self._rules = rules
        self._now = now
        self._seen: list[BaseException] = []  # kept alive, so that no identity is used twice

    def classify(self, error: BaseException) -> FailureAndSource | None:
        """Return what is known of *error* or of what it came from, None if nothing is."""
        if len(self._seen) >= _MOST_LINKS or any(error is seen for seen in self._seen):
            return None
        self._seen.append(error)

        known = self._known(error)
        if known is None and isinstance(error, BaseExceptionGroup):
            return self._worst(error.exceptions)
        failure, wraps = known or (None, False)
        if failure is None or wraps:
            beneath = self._first(_wrapped(error) if wraps else [error.__cause__])
            failure = beneath or failure or self._retryable_context(error)
        elif failure.error_class is ErrorClass.CONNECT_FAILED:
            # A client may report a bad certificate as a failed connection; it fails until a setting is changed.
            beneath = self._first([error.__cause__])
            if beneath is not None and beneath.error_class is ErrorClass.MISCONFIGURED:
                failure = beneath
        return None if failure is None else (failure, error)

    def _known(self, error: BaseException) -> tuple[Failure, bool] | None:
        """Return what is known of *error* itself, and whether a wrapped exception takes precedence."""
        own = next((rule for rule in self._rules if _fits(rule, error)), None)
        if own is None and (said := _said_by_handler(error)) is not None:
            return self._completed_by_cause(said, error.__cause__), False

        evidence = read(error)
        rule = own or next((TABLE[signal] for signal in evidence.signals if signal in TABLE), None)
        if rule is None:
            return None
        failure = rule.as_failure()
        advice = should_retry(evidence.headers) if rule.retryable is None else None
        return replace(
            failure,
            retryable=failure.retryable if advice is None else advice,
            wait=failure.wait or wait_hint(evidence.headers, evidence.body, now=self._now),
            upstream_status=evidence.status,
        ), rule.wraps

    def _completed_by_cause(self, said: Failure, cause: BaseException | None) -> Failure:
        """Complete the failure of a handler that only stated whether to retry by that of its cause."""
        if said.message or said.error_class is not ErrorClass.UNKNOWN:
            return said
        beneath = self._first([cause])
        if beneath is None:
            return said
        code = beneath.code if said.code is PublicCode.UNKNOWN else said.code
        return replace(beneath, retryable=said.retryable, code=code, wait=said.wait or beneath.wait)

    def _first(self, errors: Iterable[BaseException | None]) -> Failure | None:
        found = (self.classify(error) for error in errors if error is not None)
        return next((match[0] for match in found if match is not None), None)

    def _retryable_context(self, error: BaseException) -> Failure | None:
        """Return the failure that was being handled when *error* was raised, if it is retryable; never one that is not.

        Code that recovers from one failure and then meets another has moved on: whether something was sent is unknown.
        """
        if error.__cause__ is not None or error.__suppress_context__:
            return None
        context = self._first([error.__context__])
        return replace(context, sent=Sent.MAYBE) if context is not None and context.retryable else None

    def _worst(self, errors: Iterable[BaseException]) -> FailureAndSource | None:
        """One member that cannot be retried decides for the group; otherwise the one that waits longest."""
        classified = [self.classify(error) or (_unknown(), error) for error in errors]
        failure, source = max(classified, key=lambda one: (not one[0].retryable, one[0].wait or timedelta(0)))
        sent = max((one.sent for one, _ in classified), key=_CERTAINTY.index)
        return replace(failure, sent=sent), source


def _fits(rule: Rule, error: BaseException) -> bool:
    try:
        return rule.fits(error)
    except Exception:  # noqa: BLE001 - a predicate that raises does not match
        return False


def _said_by_handler(error: BaseException) -> Failure | None:
    match error:
        case Retryable() | Permanent():
            return error.as_failure()
        case StageFailed() | ResultTimeout():
            return error.failure
        case JobFailed():
            # The other job has had its attempts, and its failure was reported to its provider.
            return replace(error.failure, retryable=False, scope=Scope.JOB, verdict=Verdict.IGNORE)
    return None


def _wrapped(error: BaseException) -> Iterator[BaseException | None]:
    """Yield the places where client libraries keep the exception that they wrap."""
    yield error.__cause__
    yield from (argument for argument in error.args if isinstance(argument, BaseException))
    reason = getattr(error, "reason", None)
    yield reason if isinstance(reason, BaseException) else None
    yield None if error.__suppress_context__ else error.__context__


def _location(error: BaseException, _: Callable[[str], str]) -> str:
    """Return where in the application *error* was met, or else what it came from."""
    return next(filter(None, map(frames.location, links(error))), "")


def _request_id(error: BaseException, redact: Callable[[str], str]) -> str:
    found = next(filter(None, map(request_id, links(error))), "")
    return redact(found)[:_LONGEST_REQUEST_ID]


def _without_empty(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


def _unknown() -> Failure:
    return Failure.of(ErrorClass.UNKNOWN, "")
