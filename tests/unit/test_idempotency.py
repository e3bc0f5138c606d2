"""Whether a submission makes a new job, or an earlier one stands for it."""

import pytest

from holdfast.core.errors import KeyReused, VersionRefused
from holdfast.core.jobs.idempotency import EarlierJob, admit_version, existing_receipt, jobs_with_reused_keys
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.core.strict_json import fingerprint
from tests.builders import a_job

SAME, OTHER = '{"text":"a"}', '{"text":"b"}'


def keyed(args: str = SAME, *, strict: bool = False) -> Submission:
    return a_job(key="k1", args=args, strict_keys=strict)


def versioned(
    version: int | None, *, rerun: bool = False, args: str = SAME, strict: bool = False
) -> Submission:
    return a_job(subject="c1", version=version, rerun=rerun, args=args, strict_keys=strict)


def earlier(version: int | None = None) -> EarlierJob:
    return EarlierJob("first", fingerprint(SAME), version)


@pytest.mark.parametrize("strict", [False, True])
def test_the_same_key_with_the_same_payload_is_answered_with_the_first_job(strict: bool) -> None:
    assert existing_receipt(keyed(strict=strict), earlier()) == Receipt("first", existing=True)


def test_another_payload_under_a_used_key_is_answered_with_the_first_job_and_reported() -> None:
    assert existing_receipt(keyed(OTHER), earlier()) == Receipt("first", existing=True, payload_differs=True)


def test_strict_keys_refuse_another_payload_by_the_name_of_the_key() -> None:
    with pytest.raises(
        KeyReused, match=r"key 'k1' of job 'greet'.*submit with a new key, or .* run the same subject again$"
    ):
        existing_receipt(keyed(OTHER, strict=True), earlier())


def test_strict_keys_refuse_another_payload_under_the_same_version() -> None:
    with pytest.raises(KeyReused, match=r"version 3 of 'c1'.*higher version"):
        admit_version(versioned(3, args=OTHER, strict=True), earlier(3))


def test_the_first_version_of_a_subject_makes_a_job() -> None:
    assert admit_version(versioned(1), None) is None


@pytest.mark.parametrize(("asked", "latest"), [(None, 1), (1, None)])
def test_what_has_no_version_is_not_measured_by_one(asked: int | None, latest: int | None) -> None:
    assert admit_version(versioned(asked), earlier(latest)) is None


def test_an_equal_version_is_answered_with_the_earlier_job() -> None:
    assert admit_version(versioned(2), earlier(2)) == Receipt("first", existing=True)


@pytest.mark.parametrize("rerun", [False, True])
def test_a_lower_version_is_refused_and_names_the_one_to_exceed(rerun: bool) -> None:
    with pytest.raises(
        VersionRefused, match=r"version 1 of 'c1'.*version 2, which .*; submit a higher version$"
    ):
        admit_version(versioned(1, rerun=rerun), earlier(2))


def test_a_higher_version_makes_a_job_only_when_a_rerun_is_asked_for() -> None:
    assert admit_version(versioned(3, rerun=True), earlier(2)) is None
    with pytest.raises(VersionRefused, match=r"'c1'.*version 2.*version 3.*rerun=True"):
        admit_version(versioned(3), earlier(2))


def test_jobs_that_stand_for_another_payload_are_named_once_and_in_order() -> None:
    answers = [
        Receipt("b", existing=True, payload_differs=True),
        Receipt("a", existing=True, payload_differs=True),
        Receipt("b", existing=True, payload_differs=True),
        Receipt("same", existing=True),
        Receipt("new"),
        KeyReused("refused"),
    ]

    assert jobs_with_reused_keys(answers) == ["a", "b"]
