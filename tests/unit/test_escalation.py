"""What follows when a job has no attempt left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.failures.escalation import (
    DEFAULT_ESCALATIONS,
    LEVELS,
    Escalation,
    escalation_table,
    level_of,
)
from holdfast.core.failures.failure import MEANINGS, ErrorClass, Verdict

WORDS = st.sampled_from(Escalation)


AGREED = {
    # A model or a transcription that does not answer: the backup, if there is one, then a person.
    "NETWORK_TIMEOUT": "backup review",
    "UPSTREAM_5XX": "backup review",
    "OVERLOADED": "backup review",
    "RATE_LIMITED": "backup review",
    # The network.
    "CONNECT_FAILED": "backup alert",
    "CONNECTION_LOST": "backup alert",
    "POOL_EXHAUSTED": "alert",
    # Validation, and what else is about this one job.
    "SCHEMA_INVALID": "review",
    "TOO_LARGE": "review",
    "MEDIA_INVALID": "review",
    "POLICY_REJECTED": "review",
    "RECIPIENT_REJECTED": "review",
    "NOT_FOUND": "review",
    "PERMISSION_DENIED": "review",
    "CONFLICT": "review",
    "BAD_RESPONSE": "review",
    "TIMEOUT": "review",
    # Our own mistakes and settings.
    "BUG": "page",
    "STAGE_MISMATCH": "page",
    "MISCONFIGURED": "backup page",
    "AUTH_DENIED": "backup page",
    "QUOTA_EXHAUSTED": "backup page",
    # Around the job.
    "DB_TRANSIENT": "review",
    "DB_AMBIGUOUS": "review",
    "RESOURCE": "review",
    "WORKER_LOST": "review",
    "UNKNOWN": "backup review",
}


@pytest.mark.clause("RET-7")
@pytest.mark.parametrize("kind", ErrorClass)
def test_unless_a_job_says_otherwise_the_agreed_table_holds(kind: ErrorClass) -> None:
    assert " ".join(DEFAULT_ESCALATIONS[kind]) == AGREED[kind.value]


@pytest.mark.clause("RET-7")
@pytest.mark.parametrize("kind", ["SCHEMA_INVALID", "TOO_LARGE", "MEDIA_INVALID", "BUG", "MISCONFIGURED"])
def test_what_no_retry_repairs_is_a_dead_letter_at_once(kind: str) -> None:
    assert not MEANINGS[ErrorClass(kind)].retryable


@pytest.mark.clause("RET-7")
@pytest.mark.parametrize("kind", ErrorClass)
def test_every_class_escalates_as_the_table_says(kind: ErrorClass) -> None:
    assert level_of(kind) in LEVELS
    assert level_of(kind) is DEFAULT_ESCALATIONS[kind][-1]


@pytest.mark.parametrize(
    "kind", [kind for kind, meaning in MEANINGS.items() if meaning.verdict is Verdict.FAIL]
)
def test_a_backup_is_asked_after_every_failure_that_counts_against_the_provider(kind: ErrorClass) -> None:
    assert Escalation.BACKUP in DEFAULT_ESCALATIONS[kind]


@pytest.mark.clause("RET-7")
@given(st.dictionaries(st.sampled_from(ErrorClass), st.lists(WORDS), max_size=5))
def test_a_job_has_its_own_table_and_the_default_one_stands_for_what_it_does_not_name(
    own: dict[ErrorClass, list[Escalation]],
) -> None:
    read = escalation_table({kind.value: [word.value for word in words] for kind, words in own.items()})

    assert read == {kind: tuple(own.get(kind, DEFAULT_ESCALATIONS[kind])) for kind in ErrorClass}


def test_without_a_table_of_its_own_a_job_has_the_default_one() -> None:
    assert escalation_table() == escalation_table({}) == DEFAULT_ESCALATIONS


def test_one_word_needs_no_list() -> None:
    own = escalation_table({"BUG": "review"})

    assert own[ErrorClass.BUG] == (Escalation.REVIEW,)


@given(st.lists(WORDS))
def test_a_letter_escalates_as_the_most_urgent_word_says_and_never_less_than_reviewed(
    words: list[Escalation],
) -> None:
    level = level_of(ErrorClass.BUG, escalation_table({"BUG": words}))

    assert level in LEVELS
    assert all(LEVELS.index(level) >= LEVELS.index(word) for word in words if word in LEVELS)
    assert level in words or level is Escalation.REVIEW


def test_an_unknown_class_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"'SLOW' is not an error class; the classes are CONNECT_FAILED, .*UNKNOWN"
    ):
        escalation_table({"SLOW": "page"})


@pytest.mark.parametrize("words", ["shout", ["backup", "shout"], ""])
def test_an_unknown_word_is_refused_with_those_that_there_are(words: str | list[str]) -> None:
    with pytest.raises(ValueError, match="cannot follow BUG; use 'review', 'backup', 'alert' or 'page'"):
        escalation_table({"BUG": words})
