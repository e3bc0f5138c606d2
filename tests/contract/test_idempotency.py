"""The same key is the same job: for a hundred callers at once, and for as long as the key is known."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import Status
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.errors import KeyReused, VersionRefused
from holdfast.ports import Store
from holdfast.ports.store import SubmissionRefusal
from tests.builders import a_job
from tests.contract.conftest import Database
from tests.contract.steps import LEASE, a_claim, a_completed_job, a_failed_job, claimed, submitted


async def answer_to(store: Store, job: Submission) -> Receipt | SubmissionRefusal:
    [answer] = await store.submit([job])
    return answer


def refusals(answers: Sequence[Receipt | SubmissionRefusal]) -> list[type[Exception] | None]:
    return [type(answer.error) if isinstance(answer, SubmissionRefusal) else None for answer in answers]


@pytest.mark.clause("IDM-1")
async def test_a_hundred_submissions_at_once_make_one_job(database: Database, store: Store) -> None:
    stores = [database.new_store() for _ in range(3)]
    for each in stores:
        await each.open()

    answers = await asyncio.gather(*[answer_to(stores[n % 3], a_job(key="order-7")) for n in range(100)])

    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    assert len({receipt.id for receipt in receipts}) == 1
    assert sorted(receipt.existing for receipt in receipts) == [False] + [True] * 99
    assert await store.queues.counts() == {("default", Status.QUEUED): 1}
    for each in stores:
        await each.close()


@pytest.mark.clause("IDM-1")
async def test_a_key_belongs_to_its_owner_and_its_job_name(store: Store) -> None:
    jobs = [
        a_job(key="k"),
        a_job(key="k", owner="ada"),
        a_job(key="k", owner="bob"),
        a_job(key="k", owner="ada", name="review"),
        a_job(key="K"),
    ]

    assert await store.submit(jobs) == [Receipt(job.id) for job in jobs]


@pytest.mark.clause("IDM-1")
async def test_another_payload_under_the_same_key_is_recognized_and_makes_no_job(store: Store) -> None:
    first = a_job(key="k", args='{"a":1,"b":2}')
    await submitted(store, first)

    reordered = await answer_to(store, a_job(key="k", args='{"b":2,"a":1}'))
    other = await answer_to(store, a_job(key="k", args='{"a":1,"b":3}'))

    assert reordered == Receipt(first.id, existing=True)
    assert other == Receipt(first.id, existing=True, payload_differs=True)
    assert (await store.get(first.id)).args == first.args


@pytest.mark.clause("IDM-1")
async def test_strict_keys_refuse_another_payload_and_allow_the_same(store: Store) -> None:
    first = a_job(key="k", args='{"a":1}')
    await submitted(store, first)

    same, other = await store.submit(
        [a_job(key="k", args='{"a":1}', strict_keys=True), a_job(key="k", args='{"a":2}', strict_keys=True)]
    )

    assert same == Receipt(first.id, existing=True)
    assert refusals([other]) == [KeyReused]


@pytest.mark.clause("IDM-2")
async def test_a_completed_job_answers_for_its_key_and_its_version(store: Store) -> None:
    done = await a_completed_job(store, a_job(key="k", subject="c1", version=3), result='"stored"')

    answers = await store.submit([a_job(key="k"), a_job(subject="c1", version=3)])

    assert answers == [Receipt(done.id, existing=True), Receipt(done.id, existing=True)]
    assert (await store.get(done.id)).result == '"stored"'
    assert await store.claim("worker", "default", limit=9, lease=LEASE) == []


@pytest.mark.clause("IDM-2")
async def test_a_failed_or_cancelled_job_answers_for_its_key_too(store: Store) -> None:
    failed = await a_failed_job(store, a_job(key="failed"))
    [cancelled] = await submitted(store, a_job(key="cancelled"))
    await store.cancel(cancelled)

    answers = await store.submit([a_job(key="failed"), a_job(key="cancelled")])

    assert answers == [Receipt(failed.id, existing=True), Receipt(cancelled, existing=True)]


@pytest.mark.clause("IDM-3")
async def test_a_higher_version_runs_when_asked_for_and_leaves_the_old_result(store: Store) -> None:
    old = await a_completed_job(store, a_job(subject="c1", version=1), result='"old"')

    unasked = await store.submit([a_job(subject="c1", version=2)])
    new = a_job(subject="c1", version=2, rerun=True)
    await submitted(store, new)

    assert refusals(unasked) == [VersionRefused]
    assert (await claimed(store)).id == new.id
    job, before = await store.get(new.id), await store.get(old.id)
    assert (job.subject, job.version) == ("c1", 2)
    assert (before.version, before.result) == (1, '"old"')


@pytest.mark.clause("IDM-3")
async def test_an_equal_version_is_the_prior_job_and_a_lower_one_is_refused(store: Store) -> None:
    first, second = a_job(subject="c1", version=2), a_job(subject="c1", version=3, rerun=True)
    await submitted(store, first)
    await submitted(store, second)

    equal, lower, gap = await store.submit(
        [
            a_job(subject="c1", version=3, rerun=True),
            a_job(subject="c1", version=1, rerun=True),
            a_job(subject="c1", version=2, rerun=True),
        ]
    )

    assert equal == Receipt(second.id, existing=True)
    assert refusals([lower, gap]) == [VersionRefused, VersionRefused]


@pytest.mark.clause("IDM-3")
async def test_of_many_reruns_at_once_one_makes_the_job(store: Store, other_store: Store) -> None:
    await submitted(store, a_job(subject="c1", version=1))
    reruns = [a_job(subject="c1", version=2, rerun=True) for _ in range(20)]

    answers = await asyncio.gather(
        *[answer_to((store, other_store)[n % 2], job) for n, job in enumerate(reruns)]
    )

    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    assert len(receipts) == 20
    assert len({receipt.id for receipt in receipts}) == 1
    assert [receipt.existing for receipt in receipts].count(False) == 1


@pytest.mark.clause("IDM-3")
async def test_versions_belong_to_owner_job_name_and_subject(store: Store) -> None:
    jobs = [
        a_job(subject="c1", version=5),
        a_job(subject="c2", version=1),
        a_job(subject="c1", version=1, owner="ada"),
        a_job(subject="c1", version=1, name="review"),
    ]

    assert await store.submit(jobs) == [Receipt(job.id) for job in jobs]


@pytest.mark.clause("IDM-4")
async def test_a_duplicate_of_a_job_in_progress_starts_nothing(store: Store) -> None:
    running = await a_claim(store, a_job(key="k", subject="c1", version=1))

    answers = await store.submit([a_job(key="k"), a_job(subject="c1", version=1)])

    assert answers == [Receipt(running.id, existing=True)] * 2
    assert await store.claim("another", "default", limit=9, lease=LEASE) == []


async def test_a_key_whose_version_was_refused_is_free_again(store: Store) -> None:
    await submitted(store, a_job(subject="c1", version=2))
    refused = await store.submit([a_job(key="k", subject="c1", version=1)])

    free = a_job(key="k")

    assert refusals(refused) == [VersionRefused]
    assert await store.submit([free]) == [Receipt(free.id)]


async def test_a_job_whose_key_is_taken_takes_no_version(store: Store) -> None:
    [first] = await submitted(store, a_job(key="k"))

    answer = await answer_to(store, a_job(key="k", subject="c1", version=9))

    assert answer == Receipt(first, existing=True)
    await submitted(store, a_job(subject="c1", version=1))


async def test_no_submission_is_answered_with_a_job_that_was_refused_in_the_same_batch(store: Store) -> None:
    await submitted(store, a_job(subject="c1", version=2))
    refused, twin, free = (
        a_job(key="k", subject="c1", version=1),
        a_job(key="k", subject="c1", version=1),
        a_job(key="k"),
    )

    answers = await store.submit([refused, twin, free])

    assert refusals(answers) == [VersionRefused, VersionRefused, None]
    assert answers[2] == Receipt(free.id)
    assert (await store.get(free.id)).status is Status.QUEUED


async def test_one_refusal_does_not_stop_its_neighbours(store: Store) -> None:
    await submitted(store, a_job(key="k", args='{"a":1}'), a_job(subject="c1", version=2))
    fine = [a_job(), a_job(key="new"), a_job(subject="c2", version=1)]

    answers = await store.submit(
        [fine[0], a_job(key="k", strict_keys=True), fine[1], a_job(subject="c1", version=1), fine[2]]
    )

    assert refusals(answers) == [None, KeyReused, None, VersionRefused, None]
    assert [answer for answer in answers if isinstance(answer, Receipt)] == [Receipt(job.id) for job in fine]
