"""Whether a submission makes a new job, or is answered with an earlier one."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core.errors import KeyReused, VersionRefused
from holdfast.core.jobs.job import Receipt, Submission


class EarlierJob(NamedTuple):
    """A job submitted before, under the same key or for the same subject."""

    id: str
    fingerprint: str | None
    version: int | None = None


def existing_receipt(submission: Submission, earlier: EarlierJob) -> Receipt:
    """Answer *submission* with the job that was made for its key before.

    Raises `KeyReused` if the payload differs and the caller asked for strict keys.
    """
    differs = earlier.fingerprint != submission.fingerprint
    if differs and submission.strict_keys:
        what = (
            f"version {submission.version} of {submission.subject!r}"
            if earlier.version is not None
            else f"key {submission.key!r}"
        )
        raise KeyReused(
            f"{what} of job {submission.name!r} was used before with another payload; "
            "submit with a new key, or with a higher version to run the same subject again"
        )
    return Receipt(earlier.id, existing=True, payload_differs=differs)


def admit_version(submission: Submission, latest: EarlierJob | None) -> Receipt | None:
    """Decide on a versioned submission: `None` means that a new job is made.

    Raises `VersionRefused` if the version is lower than the latest one, or higher without `rerun`.
    """
    if latest is None or latest.version is None or submission.version is None:
        return None
    if submission.version == latest.version:
        return existing_receipt(submission, latest)
    if submission.version < latest.version:
        raise VersionRefused(
            f"version {submission.version} of {submission.subject!r} is older than version {latest.version}, "
            "which was submitted before; submit a higher version"
        )
    if not submission.rerun:
        raise VersionRefused(
            f"{submission.subject!r} was submitted before as version {latest.version}; "
            f"to run version {submission.version}, submit with rerun=True"
        )
    return None


REUSED = '{"reason":"key reused with another payload"}'
"""What the history of a job says when its key, or its version, comes again with other arguments."""


def jobs_with_reused_keys(answers: Iterable[object]) -> list[str]:
    """Return the ids of the jobs that answered a submission with a different payload."""
    return sorted({answer.id for answer in answers if isinstance(answer, Receipt) and answer.payload_differs})
