"""From an exception to a `Failure`: the one place where an error is judged.

The exception and what it was raised from are looked at from the outside in. A user's rules speak first, then the
library's own exceptions, then the table in `rules`. What nobody knows is `UNKNOWN`, which is retried.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.core import frames, wording
from holdfast.core.errors import JobFailed, Permanent, ResultTimeout, Retryable, StageFailed
from holdfast.core.evidence import links, read, request_id
from holdfast.core.failures import ErrorClass, Failure, PublicCode, Scope, Sent, Verdict, fingerprint_of
from holdfast.core.hints import should_retry, wait_hint
from holdfast.core.redaction import EachOnce
from holdfast.core.rules import TABLE, Rule

_MOST_LINKS = 100
_LONGEST_REQUEST_ID = 200
_CERTAINTY = (Sent.NO, Sent.MAYBE, Sent.YES)

SHORT = 2_000
"""Characters that are redacted within a few milliseconds, 2.5 µs each."""

Words = Callable[[BaseException, Callable[[str], str]], str]
"""What is told of an exception, given what takes out its secrets."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What an exception means, before its words are written: those take a thousand times as long.

    `teller` is the exception whose words tell the failure: *error* itself, or one beneath it.
    """

    failure: Failure
    error: BaseException
    teller: BaseException

    @property
    def is_long(self) -> bool:
        """Whether its words take so long to write that an event loop should not wait for them."""
        return not self.failure.message and wording.length(self.error) > SHORT

    @property
    def unworded(self) -> Failure:
        """The failure with the name of its exception instead of words."""
        return (
            self.failure
            if self.failure.message
            else replace(self.failure, message=type(self.teller).__name__)
        )


class Classifier:
    """Judges exceptions by the library's table and by the rules of its user, which come first.

    *redact* is given the text of messages and stacks before it is cut to its place, and returns it without
    secrets. Among the user's rules the first that fits decides.

    >>> from holdfast.core.rules import rule
    >>> classifier = Classifier(rule("builtins.LookupError", error_class=ErrorClass.NOT_FOUND))
    >>> str(classifier.classify(KeyError("c1")).error_class)
    'NOT_FOUND'
    >>> str(Classifier().classify(KeyError("c1")).error_class)
    'BUG'
    """

    def __init__(self, *rules: Rule, redact: Callable[[str], str] = str) -> None:
        self._rules = rules
        self._redact = redact

    def classify(self, error: BaseException, *, now: datetime | None = None) -> Failure:
        """Return what *error* means, with its words. Never raises, whatever the exception is made of.

        *now* is only needed to read a date for the next try in an answer that does not carry its own date.
        """
        return self.word(self.judge(error, now=now))

    def judge(self, error: BaseException, *, now: datetime | None = None) -> Judged:
        """Return what *error* means, without its words. Never raises, and redacts nothing."""
        try:
            failure, teller = _Search(self._rules, now).judge(error) or (_unknown(), error)
        except Exception:  # noqa: BLE001 - an attempt's end must always be told, even if all of it is broken
            failure, teller = _unknown(), error
        return Judged(failure, error, teller)

    def word(self, judged: Judged) -> Failure:
        """Add message, stack and context. Never raises; may be called in any thread."""
        failure, error, teller = judged.failure, judged.error, judged.teller
        if failure.message:  # a stage's or another job's, which was worded when it was met
            return failure
        redact = EachOnce(self._redact)
        place = _worded(_place, redact, teller, error)
        return replace(
            failure,
            message=_worded(wording.line, redact, teller) or type(teller).__name__,
            stack=_worded(wording.stack, redact, error),
            fingerprint=fingerprint_of(failure.error_class, place),
            context=_told(place=place, request_id=_worded(_request_id, redact, error)),
        )

    def describe(self, error: BaseException) -> str:
        """Say on one line what went wrong."""
        judged = self.judge(error)
        return (
            judged.failure.message
            or _worded(wording.line, self._redact, judged.teller)
            or type(error).__name__
        )


def _worded(words: Words, redact: Callable[[str], str], *errors: BaseException) -> str:
    """Return what *words* make of the first of *errors* of which they can make something."""
    try:
        return next(filter(None, (words(error, redact) for error in errors)), "")
    except Exception:  # noqa: BLE001 - text that cannot be redacted is not told at all
        return ""


Judgement = tuple[Failure, BaseException]
"""What a failure means, and the exception whose words should tell it."""


class _Search:
    """One walk through an exception and what lies beneath it; each is looked at once."""

    def __init__(self, rules: tuple[Rule, ...], now: datetime | None) -> None:
        self._rules = rules
        self._now = now
        self._seen: list[BaseException] = []  # kept alive, so that no identity is used twice

    def judge(self, error: BaseException) -> Judgement | None:
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
            failure = beneath or failure or self._lent_by_context(error)
        elif failure.error_class is ErrorClass.CONNECT_FAILED:
            failure = self._bad_certificate(error) or failure
        return None if failure is None else (failure, error)

    def _known(self, error: BaseException) -> tuple[Failure, bool] | None:
        """Return what is known of *error* itself, and whether what it wraps may know better."""
        own = next((rule for rule in self._rules if _fits(rule, error)), None)
        if own is None and (said := _said_by_handler(error)) is not None:
            return self._informed(said, error.__cause__), False

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

    def _informed(self, said: Failure, cause: BaseException | None) -> Failure:
        """A handler that only says whether to retry leaves the rest to what it raised from."""
        if said.message or said.error_class is not ErrorClass.UNKNOWN:
            return said
        beneath = self._first([cause])
        if beneath is None:
            return said
        code = beneath.code if said.code is PublicCode.UNKNOWN else said.code
        return replace(beneath, retryable=said.retryable, code=code, wait=said.wait or beneath.wait)

    def _first(self, errors: Iterable[BaseException | None]) -> Failure | None:
        found = (self.judge(error) for error in errors if error is not None)
        return next((judgement[0] for judgement in found if judgement is not None), None)

    def _bad_certificate(self, error: BaseException) -> Failure | None:
        """A client calls it a failed connection, but it will fail until somebody changes a setting."""
        beneath = self._first([error.__cause__])
        return beneath if beneath is not None and beneath.error_class is ErrorClass.MISCONFIGURED else None

    def _lent_by_context(self, error: BaseException) -> Failure | None:
        """What was being handled when *error* was raised may lend it patience, but never takes it away.

        Code that recovers from one failure and then meets another has moved on: whether something was sent is open.
        """
        if error.__cause__ is not None or error.__suppress_context__:
            return None
        context = self._first([error.__context__])
        return replace(context, sent=Sent.MAYBE) if context is not None and context.retryable else None

    def _worst(self, errors: Iterable[BaseException]) -> Judgement | None:
        """One member that cannot be retried decides for the group; otherwise the one that waits longest."""
        judged = [self.judge(error) or (_unknown(), error) for error in errors]
        failure, teller = max(judged, key=lambda one: (not one[0].retryable, one[0].wait or timedelta(0)))
        sent = max((one.sent for one, _ in judged), key=_CERTAINTY.index)
        return replace(failure, sent=sent), teller


def _fits(rule: Rule, error: BaseException) -> bool:
    try:
        return rule.fits(error)
    except Exception:  # noqa: BLE001 - a predicate that stumbles over an exception does not know it
        return False


def _said_by_handler(error: BaseException) -> Failure | None:
    match error:
        case Retryable() | Permanent():
            return error.as_failure()
        case StageFailed() | ResultTimeout():
            return error.failure
        case JobFailed():
            # The other job has had its attempts, and its provider has been told.
            return replace(error.failure, retryable=False, scope=Scope.JOB, verdict=Verdict.IGNORE)
    return None


def _wrapped(error: BaseException) -> Iterator[BaseException | None]:
    """Yield the places where client libraries keep the exception that they wrap."""
    yield error.__cause__
    yield from (argument for argument in error.args if isinstance(argument, BaseException))
    reason = getattr(error, "reason", None)
    yield reason if isinstance(reason, BaseException) else None
    yield None if error.__suppress_context__ else error.__context__


def _place(error: BaseException, _: Callable[[str], str]) -> str:
    """Return where in the application *error* was met, or else what it came from."""
    return next(filter(None, map(frames.place, links(error))), "")


def _request_id(error: BaseException, redact: Callable[[str], str]) -> str:
    found = next(filter(None, map(request_id, links(error))), "")
    return redact(found)[:_LONGEST_REQUEST_ID]


def _told(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


def _unknown() -> Failure:
    return Failure.of(ErrorClass.UNKNOWN, "")
