"""A job that failed leaves a letter: what went wrong, where, how often, and nothing that is secret."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, JobFunction, Permanent, Retryable, current, rule
from holdfast.core.strict_json import fingerprint
from holdfast.errors import LetterNotFound
from holdfast.operations import LetterState, Ticket
from holdfast.ports import Store
from holdfast.types import PublicCode, Sent
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import (
    all_failed,
    answered,
    failed,
    in_letter_state,
    letter_of,
    move_plans,
    notify_tickets,
    opened,
    planned,
    two_stages,
)
from tests.contract.services import Service, down, held
from tests.contract.steps import LEASE, TIMEOUT

MINUTE = timedelta(minutes=1)
SECRET = "sk-" + "a1B2" * 8


class Moody(Exception):
    """An error that only the application knows."""


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger, code_version="1.4") as made:
        yield made


def review_of(hold: Holdfast, clock: DatabaseClock) -> JobFunction[[str], None]:
    """Declare a job whose second stage calls a provider that answers 503, and again a minute later."""
    llm = hold.provider("llm")

    @hold.stage("fetch")
    async def fetch(essay: str) -> str:
        return essay

    @hold.stage("llm", provider=llm, attempts=2)
    async def ask(essay: str) -> None:
        if current().attempt > 1:
            await clock.advance(MINUTE)
        raise answered(503, f"no answer for {SECRET}", x_request_id="req-77")

    @hold.job("review")
    async def review(essay: str) -> None:
        await ask(await fetch(essay))

    return review


@pytest.mark.clause("DLQ-1")
@pytest.mark.clause("STG-3")
async def test_a_letter_says_all_there_is_to_know_about_the_failure(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    review = review_of(hold, clock)
    await hold.providers.pause("llm", actor="ann", reason="maintenance")

    async with hold.worker(poll=0.05):
        handle = await review.submit("Once upon a time")
        await held(hold, "llm", 1)
        await hold.providers.resume("llm", actor="ann")
        await all_failed(hold, [handle])
    found = await hold.dead_letters.show(handle.id)
    letter, job = found.letter, await handle.read()

    assert (letter.payload_ref, letter.name, letter.state) == (job.id, "review", LetterState.NEW)
    assert (letter.error_class, letter.stage) == (ErrorClass.OVERLOADED, "llm")
    assert (letter.generation, letter.deaths, letter.replays) == (1, 1, 0)
    assert letter.first_failure_at + MINUTE <= letter.last_failure_at
    assert letter.last_failure_at == job.finished_at
    assert "in ask" in letter.last_stack
    assert "Once upon a time" not in str(found)
    hidden = hold.runtime.redactor.payload_hash(job.args)
    assert found.sanitized_context == {
        "place": f"{__name__}:ask",
        "request_id": "req-77",
        "provider": "llm",
        "level": "review",
        "code_version": "1.4",
        "stage": "llm",
        "attempt": 2,
        "attempts": {"fetch": 1, "llm": 2},
        "holds": 1,
        "replays": 0,
        "upstream_status": 503,
        "sent": Sent.MAYBE,
        "code": PublicCode.GW_5XX,
        "payload_hash": hidden,
    }
    assert len(hidden) == 16
    assert hidden not in fingerprint(job.args), "without the store's key payloads cannot be tried out"


@pytest.mark.clause("DLQ-1")
async def test_equal_arguments_have_equal_hashes_and_failures_of_one_place_one_fingerprint(
    hold: Holdfast,
) -> None:
    @hold.job("first", attempts=1)
    async def first(essay: str) -> None:
        raise TimeoutError(essay)

    @hold.job("second", attempts=1)
    async def second(essay: str) -> None:
        raise TimeoutError(essay)

    async with hold.worker(poll=0.05):
        calls = [await first.submit("a"), await first.submit("b"), await second.submit("a")]
        await all_failed(hold, calls)
    found = [await hold.dead_letters.show(handle.id) for handle in calls]
    groups = await hold.dead_letters.groups()

    hashes = [one.payload_hash for one in found]
    prints = [one.letter.fingerprint for one in found]
    assert (hashes[0] == hashes[2], hashes[0] == hashes[1]) == (True, False)
    assert (prints[0] == prints[1], prints[0] == prints[2]) == (True, False)
    assert {group.fingerprint: (group.letters, group.open) for group in groups} == {
        prints[0]: (2, 2),
        prints[2]: (1, 1),
    }


@pytest.mark.clause("DLQ-1")
async def test_failures_of_other_jobs_and_stages_are_other_groups_although_they_failed_alike(
    hold: Holdfast,
) -> None:
    """A timeout has no place in the code, and a function that two jobs use has one: the job distinguishes them."""

    @hold.stage("read", attempts=1, timeout=0.01)
    async def read(number: int) -> None:
        await asyncio.sleep(60)

    @hold.stage("send", attempts=1, timeout=0.01)
    async def send(number: int) -> None:
        await asyncio.sleep(60)

    @hold.job("grade", attempts=1)
    async def grade(number: int) -> None:
        call = read.options(key=f"essay {number}") if number < 2 else send
        await call(number)

    @hold.job("mail", attempts=1)
    async def mail() -> None:
        await read(7)

    @hold.job("wait", attempts=1, timeout=0.01)
    async def wait() -> None:
        await asyncio.sleep(60)

    async with hold.worker(poll=0.05):
        graded = [await grade.submit(number) for number in range(3)]
        calls = [*graded, await mail.submit(), await wait.submit()]
        await all_failed(hold, calls)
    prints = [(await hold.dead_letters.show(handle.id)).letter.fingerprint for handle in calls]

    assert prints[0] == prints[1], "the key of a call makes no group"
    assert len(set(prints[1:])) == 4


@pytest.mark.clause("DLQ-1")
@pytest.mark.parametrize("ended_by", ["sweep", "worker"])
async def test_jobs_whose_deadline_has_passed_are_a_group_for_each_job(
    hold: Holdfast, ended_by: str, clock: DatabaseClock
) -> None:
    async def overdue() -> None:
        await clock.advance(timedelta(hours=1))

    first = hold.job("first", deadline="30m")(overdue)
    second = hold.job("second", deadline="30m")(overdue)
    calls = [await first.submit(), await first.submit(), await second.submit()]
    if ended_by == "sweep":
        await clock.advance(timedelta(hours=1))
    async with hold.worker(poll=0.05):
        await all_failed(hold, calls)
    prints = [(await hold.dead_letters.show(handle.id)).letter.fingerprint for handle in calls]

    assert prints == ["TIMEOUT:first", "TIMEOUT:first", "TIMEOUT:second"]


@pytest.mark.clause("DLQ-1")
async def test_a_job_without_stages_has_its_attempts_on_record_and_one_that_completed_has_no_letter(
    hold: Holdfast,
) -> None:
    @hold.job("plain", attempts=3)
    async def plain(works: bool) -> None:
        if not works:
            raise Retryable("not yet")

    async with hold.worker(poll=0.05):
        good, bad = await plain.submit(works=True), await plain.submit(works=False)
        await good.result(timeout=TIMEOUT)
        await all_failed(hold, [bad])
    letter = await letter_of(hold, bad.id)

    assert (letter.stage, letter.attempt, letter.first_reason) == (None, 3, ErrorClass.UNKNOWN)
    with pytest.raises(LetterNotFound, match=good.id):
        await hold.dead_letters.show(good.id)


@pytest.mark.clause("DLQ-1")
async def test_a_letter_is_shown_to_its_owner_alone(hold: Holdfast) -> None:
    @hold.job("mine", attempts=1)
    async def mine() -> None:
        raise Permanent("no")

    async with hold.worker(poll=0.05):
        [job_id] = await all_failed(hold, [await mine.options(owner="anna").submit()])

    assert (await hold.dead_letters.show(job_id, owner="anna")).letter.owner == "anna"
    with pytest.raises(LetterNotFound):
        await hold.dead_letters.show(job_id, owner="bert")


@pytest.mark.clause("STG-3")
async def test_an_exhausted_stage_is_in_the_letter_with_its_attempts_and_what_came_before_it(
    hold: Holdfast,
) -> None:
    @hold.stage("fetch", attempts=1)
    async def fetch() -> str:
        return "page"

    @hold.stage("llm", attempts=3)
    async def llm(page: str) -> str:
        raise Retryable(f"no {page}", error_class=ErrorClass.OVERLOADED)

    @hold.job("review", attempts=9)
    async def review() -> str:
        return await llm.options(key="de")(await fetch())

    found = await hold.dead_letters.show(await failed(hold, review))

    assert (found.letter.stage, found.letter.attempt) == ("llm[de]", 3)
    assert [tuple(one) for one in found.stages] == [("fetch", "done", 1), ("llm[de]", "failed", 3)]
    assert found.letter.failure.message == "no page"


@pytest.mark.clause("JOB-10")
async def test_a_job_that_takes_its_workers_down_leaves_a_letter_and_its_neighbours_leave_none(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    begun: list[str] = []

    @hold.job("deadly", attempts=2, priority=1)
    async def deadly() -> None:
        begun.append("deadly")

    @hold.job("harmless", attempts=3)
    async def harmless() -> None:
        begun.append("harmless")

    job = await deadly.submit()
    neighbours = [await harmless.submit() for _ in range(3)]
    for _ in range(2):
        taken = await store.claim("doomed", "default", limit=4, lease=LEASE)
        assert len(taken) == 4
        await store.begin([(claim.id, claim.token) for claim in taken if claim.losses])
        await clock.advance(LEASE + timedelta(seconds=1))
        assert len(await store.reclaim(limit=10)) == 4
    async with hold.worker(poll=0.05):
        await all_failed(hold, [job])
        for neighbour in neighbours:
            await neighbour.result(timeout=TIMEOUT)

    [letter] = await hold.dead_letters.list()
    assert (letter.job_id, letter.error_class) == (job.id, ErrorClass.WORKER_LOST)
    assert letter.failure.context["level"] == "review"
    assert begun == ["harmless"] * 3


@pytest.mark.clause("FAIL-4")
@pytest.mark.parametrize("how", ["said by the handler", "by a rule of the user"])
async def test_a_failure_that_turns_out_not_to_be_retryable_ends_the_retries_with_a_letter(
    how: str, database: Database, logger: Logger
) -> None:
    mine = rule(f"{Moody.__module__.partition('.')[0]}.Moody", error_class=ErrorClass.POLICY_REJECTED)
    runs: list[int] = []
    async with opened(database, logger, rules=[mine]) as hold:

        @hold.stage("llm", attempts=9)
        async def llm() -> None:
            runs.append(1)
            if len(runs) == 1:
                raise Retryable("once more")
            raise Permanent("no such model") if how == "said by the handler" else Moody("not in the mood")

        @hold.job("review", attempts=9)
        async def review() -> None:
            await llm()

        letter = await letter_of(hold, await failed(hold, review))

    assert len(runs) == 2
    assert (letter.failure.retryable, letter.stage, letter.attempt) == (False, "llm", 2)
    # Its history begins with the first failure, which was another one.
    assert letter.first_failure_at <= letter.last_failure_at


@pytest.mark.clause("FAIL-3")
async def test_what_is_shown_of_a_failure_is_one_line_with_a_public_code(
    hold: Holdfast, logger: Logger
) -> None:
    received: list[Ticket] = []
    hold.on_ticket(received.append)

    @hold.job("leaky", attempts=1)
    async def leaky() -> None:
        raise FileNotFoundError(2, f"cannot read\n/srv/app/keys/{SECRET}.pem\nwith {SECRET}")

    async with hold.worker(poll=0.05):
        handle = await leaky.submit()
        with pytest.raises(JobFailed) as raised:
            await handle.result(timeout=TIMEOUT)
    await notify_tickets(hold)
    found = await hold.dead_letters.show(handle.id)
    [ticket] = [one for one in received if one.job_id == handle.id]
    shown = [
        str(raised.value),
        found.letter.failure.message,
        *(step.reason for step in found.steps),
        ticket.title,
        *(str(event.meta) for event in await handle.events()),
        *(str(line.get("message")) for line in logger.lines()),
    ]

    assert all("\n" not in text and "\\n" not in text for text in shown)
    assert not any(part in text for text in shown for part in (SECRET, "/srv/app", "Traceback"))
    assert ticket.facts["code"] in PublicCode.__members__
    assert found.sanitized_context["code"] == ticket.facts["code"]


@pytest.mark.clause("OPS-1")
async def test_a_job_that_is_cancelled_during_its_replay_leaves_a_discarded_letter(
    hold: Holdfast, service: Service
) -> None:
    service.error = down()
    job_id = await failed(hold, two_stages(hold, Service(), service), 1)
    await hold.dead_letters.replay(await planned(hold, job_id), actor="ann")
    await move_plans(hold)

    await hold.cancel(job_id)

    found = await hold.dead_letters.show(job_id)
    assert found.letter.state is LetterState.DISCARDED
    assert (found.steps[-1].actor, found.steps[-1].reason) == ("holdfast", "its job was cancelled")


@pytest.mark.clause("OPS-4")
async def test_a_retry_by_the_owner_closes_the_letter_and_another_failure_opens_it_again(
    hold: Holdfast, service: Service
) -> None:
    service.error = down()
    job_id = await failed(hold, two_stages(hold, Service(), service), 1)

    await hold.retry(job_id)
    closed = await letter_of(hold, job_id)
    async with hold.worker(poll=0.05):
        letter = await in_letter_state(hold, job_id, LetterState.NEW)

    assert (closed.state, closed.notes) == (LetterState.CLOSED, "retried by its owner")
    assert (letter.deaths, letter.replays, letter.generation) == (2, 0, 2)
    assert (letter.repeated, letter.escalated) == (False, False)
