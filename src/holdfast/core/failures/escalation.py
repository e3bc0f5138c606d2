"""What follows when a job has no attempt left: a table by the class of its failure, one for each job.

Every such job leaves a dead letter with a ticket. The table says at which level it is notified, and whether the
backup of its provider is called first.

>>> [str(word) for word in DEFAULT_ESCALATIONS[ErrorClass.CONNECT_FAILED]]
['backup', 'alert']
>>> [str(word) for word in escalation_table({"CONNECT_FAILED": "page"})[ErrorClass.CONNECT_FAILED]]
['page']
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from holdfast.core.failures.failure import MEANINGS, ErrorClass, Scope, Verdict


class Escalation(StrEnum):
    """What follows when a job has no attempt left."""

    REVIEW = "review"
    """A person looks at it when there is time."""
    BACKUP = "backup"
    """The backup of the provider is called in the last attempt; if that fails too, the other entries follow."""
    ALERT = "alert"
    """A person is notified now."""
    PAGE = "page"
    """A person is paged."""


LEVELS = (Escalation.REVIEW, Escalation.ALERT, Escalation.PAGE)
"""The levels of a ticket, the lowest first."""

EscalationTable = Mapping[ErrorClass, tuple[Escalation, ...]]

_NETWORK = (ErrorClass.CONNECT_FAILED, ErrorClass.CONNECTION_LOST, ErrorClass.POOL_EXHAUSTED)
_OURS = (
    ErrorClass.BUG,
    ErrorClass.MISCONFIGURED,
    ErrorClass.AUTH_DENIED,
    ErrorClass.QUOTA_EXHAUSTED,
    ErrorClass.STAGE_MISMATCH,
)


def _default_entry(kind: ErrorClass) -> tuple[Escalation, ...]:
    level = Escalation.ALERT if kind in _NETWORK else Escalation.PAGE if kind in _OURS else Escalation.REVIEW
    return (Escalation.BACKUP, level) if _may_be_providers_fault(kind) else (level,)


def _may_be_providers_fault(kind: ErrorClass) -> bool:
    meaning = MEANINGS[kind]
    # A user's rule may blame a provider for an unknown failure.
    return (
        kind is ErrorClass.UNKNOWN or meaning.verdict is not Verdict.IGNORE or meaning.scope is Scope.PROVIDER
    )


DEFAULT_ESCALATIONS: EscalationTable = {kind: _default_entry(kind) for kind in ErrorClass}
"""What follows unless a job has its own table.

Timeouts are reviewed, after the backup was called; a broken network alerts; mistakes and settings page the operator.
"""


def escalation_table(given: Mapping[str, str | Iterable[str]] | None = None) -> EscalationTable:
    """Parse a job's own table; `DEFAULT_ESCALATIONS` applies to classes that it does not name. Raises `ValueError`.

    >>> escalation_table({"NETWORK_TIMEOUT": ("backup", "page")})[ErrorClass.NETWORK_TIMEOUT]
    (<Escalation.BACKUP: 'backup'>, <Escalation.PAGE: 'page'>)
    """
    own = {_class(kind): _entries(kind, words) for kind, words in (given or {}).items()}
    return {**DEFAULT_ESCALATIONS, **own}


def level_of(kind: ErrorClass, own: EscalationTable = DEFAULT_ESCALATIONS) -> Escalation:
    """Return the level of the ticket of a dead letter of this *kind*.

    >>> str(level_of(ErrorClass.BUG)), str(level_of(ErrorClass.NETWORK_TIMEOUT))
    ('page', 'review')
    """
    named = [word for word in own[kind] if word in LEVELS]
    return max(named, key=LEVELS.index, default=Escalation.REVIEW)


def _class(kind: str) -> ErrorClass:
    try:
        return ErrorClass(kind)
    except ValueError:
        known = ", ".join(ErrorClass)
        raise ValueError(f"{kind!r} is not an error class; the classes are {known}") from None


def _entries(kind: str, words: str | Iterable[str]) -> tuple[Escalation, ...]:
    listed = [words] if isinstance(words, str) else list(words)
    try:
        return tuple(Escalation(word) for word in listed)
    except ValueError:
        raise ValueError(
            f"{listed!r} cannot follow {kind}; use 'review', 'backup', 'alert' or 'page', one or several"
        ) from None
