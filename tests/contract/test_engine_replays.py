"""A replay goes on where a job failed: the canary first and alone, the others at their pace, each once."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import ErrorClass, Holdfast, JobFunction, Permanent, Retryable, Status
from holdfast.core.dead_letters.replay_plan import Phase
from holdfast.errors import StepRefused
from holdfast.operations import LetterFilter, LetterState, Ticket, TicketKind
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import (
    ALL,
    all_failed,
    failed,
    in_letter_state,
    letter_of,
    move_plans,
    notify_tickets,
    opened,
    planned,
    remediated,
    replayed,
    two_stages,
    until_over,
)
from tests.contract.services import Service, down, until
from tests.contract.steps import TIMEOUT

S = LetterState
SLOW = 0.01
"""A letter every hundred seconds: no other follows while a test runs."""


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger) as made:
        yield made


@pytest.fixture
def fetched() -> Service:
    """The service of the first stage, which is well."""
    return Service()


@pytest.fixture
def review(hold: Holdfast, fetched: Service, service: Service) -> JobFunction[[int], int]:
    """A job of two stages, the second of which calls a service that is down."""
    service.error = down()
    return two_stages(hold, fetched, service)


async def states(hold: Holdfast, token: str) -> dict[LetterState, int]:
    return dict((await hold.dead_letters.progress(token)).counts.states)


@pytest.mark.clause("OPS-2")
async def test_a_replay_begins_at_the_stage_that_failed(
    hold: Holdfast, review: JobFunction[[int], int], fetched: Service, service: Service, clock: DatabaseClock
) -> None:
    job_id = await failed(hold, review, 4)
    token = await planned(hold, job_id)
    service.error = None

    async with hold.worker(poll=0.05):
        progress = await replayed(hold, clock, token)
    job, letter = await hold.read(job_id), await letter_of(hold, job_id)

    assert (job.status, json.loads(job.result or "")) == (Status.COMPLETED, 8)
    assert (fetched.calls, service.calls) == ([4], [4, 4, 4])
    assert progress.plan.phase is Phase.DONE
    assert (letter.state, letter.replays, job.generation) == (S.VERIFIED, 1, 2)


@pytest.mark.clause("OPS-2")
async def test_starting_over_is_an_explicit_choice(
    hold: Holdfast, review: JobFunction[[int], int], fetched: Service, service: Service, clock: DatabaseClock
) -> None:
    job_id = await failed(hold, review, 4)
    token = await planned(hold, job_id, restart=True)
    service.error = None

    async with hold.worker(poll=0.05):
        await replayed(hold, clock, token)

    assert (await hold.read(job_id)).status is Status.COMPLETED
    assert fetched.calls == [4, 4]
    [step] = [one for one in (await hold.dead_letters.show(job_id)).steps if one.state is S.REPLAYING]
    assert step.meta["restart"] is True


@pytest.mark.clause("OPS-2")
async def test_the_failed_stage_has_fresh_attempts(hold: Holdfast, clock: DatabaseClock) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("flaky", attempts=3)
    async def flaky() -> str:
        runs["flaky"] += 1
        if runs["flaky"] < 6:
            raise Retryable("not yet")
        return "at last"

    @hold.job("review")
    async def review() -> str:
        return await flaky()

    job_id = await failed(hold, review)
    token = await planned(hold, job_id)
    async with hold.worker(poll=0.05):
        await replayed(hold, clock, token)

    assert runs["flaky"] == 3 + 3
    assert (await hold.read(job_id)).status is Status.COMPLETED


@pytest.mark.clause("OPS-2")
async def test_the_canary_goes_first_and_alone_and_the_others_follow_at_their_pace(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(4)])
    token = await planned(hold, pace=SLOW)
    service.error = None

    await hold.dead_letters.replay(token, actor="ann")
    for _ in range(3):
        await move_plans(hold)
        await clock.advance(timedelta(minutes=10))
    assert await states(hold, token) == {S.REPLAYING: 1, S.VALIDATED: 3}, "others wait for its end"
    assert (await letter_of(hold, ids[0])).state is S.REPLAYING

    async with hold.worker(poll=0.05):
        await in_letter_state(hold, ids[0], S.VERIFIED)
        await move_plans(hold)  # from here on at a pace
        for gone in (2, 3):
            for _ in range(3):
                await move_plans(hold)
            assert (await hold.dead_letters.progress(token)).counts.replayed == gone
            await clock.advance(timedelta(seconds=100))
        progress = await until_over(hold, clock, token)

    assert (progress.plan.phase, progress.counts.states) == (Phase.DONE, {S.VERIFIED: 4})


@pytest.mark.clause("OPS-2")
async def test_what_has_completed_can_be_closed_while_the_others_wait(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(4)])
        token = await planned(hold, canary=2, pace=SLOW)
        service.error = None
        await hold.dead_letters.replay(token, actor="ann")
        await move_plans(hold)
        await in_letter_state(hold, ids[0], S.VERIFIED)
        await hold.dead_letters.close(ids[0], "it went through", actor="ann")
        progress = await until_over(hold, clock, token)

    assert (progress.plan.phase, progress.plan.why) == (Phase.DONE, "")
    assert progress.counts.states == {S.VERIFIED: 3, S.CLOSED: 1}


@pytest.mark.clause("OPS-2")
async def test_a_canary_that_fails_in_the_same_place_stops_its_plan(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock, logger: Logger
) -> None:
    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(5)])
        calls = len(service.calls)
        token = await planned(hold, canary=2)
        progress = await replayed(hold, clock, token)

    assert progress.plan.phase is Phase.STOPPED
    assert progress.plan.why == "the canary failed in the same place as before"
    assert progress.counts.states == {S.NEW: 2, S.VALIDATED: 3}
    assert len(service.calls) - calls == 2 * 2
    assert [(await letter_of(hold, one)).repeated for one in ids] == [True, True, False, False, False]
    assert logger.lines("replay stopped")[-1]["reason"] == progress.plan.why
    await move_plans(hold)
    assert await states(hold, token) == {S.NEW: 2, S.VALIDATED: 3}


@pytest.mark.clause("OPS-2")
async def test_an_operator_can_stop_a_plan_and_plan_again_for_what_is_left(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    async with hold.worker(poll=0.05):
        await all_failed(hold, [await review.submit(number) for number in range(3)])
    token = await planned(hold)
    service.error = None
    await hold.dead_letters.replay(token, actor="ann")
    await move_plans(hold)

    stopped = await hold.dead_letters.stop(token, actor="bert", reason="lunch")
    assert await hold.dead_letters.stop(token, actor="cleo") == stopped
    async with hold.worker(poll=0.05):
        await until(lambda: _verified(hold, 1))
        await move_plans(hold)
        assert await states(hold, token) == {S.VERIFIED: 1, S.VALIDATED: 2}
        left = LetterFilter(states=(S.VALIDATED,), limit=10)
        rest = (await hold.dead_letters.plan(left, safe="keyed", actor="ann")).token
        assert rest is not None
        await replayed(hold, clock, rest)

    assert stopped.plan.why == "by bert: lunch"
    assert await _verified(hold, 3)


@pytest.mark.clause("OPS-1")
async def test_a_replay_is_begun_and_stopped_by_a_named_actor(
    hold: Holdfast, review: JobFunction[[int], int]
) -> None:
    async with hold.worker(poll=0.05):
        await all_failed(hold, [await review.submit(1)])
    token = await planned(hold)

    for unnamed in (hold.dead_letters.replay(token, actor=""), hold.dead_letters.stop(token, actor=" ")):
        with pytest.raises(StepRefused, match="actor= must not be empty"):
            await unnamed

    assert (await hold.dead_letters.progress(token)).plan.phase is Phase.MADE


async def _verified(hold: Holdfast, count: int) -> bool:
    return len(await hold.dead_letters.list(LetterFilter(states=(S.VERIFIED,)))) == count


@pytest.mark.clause("OPS-2")
async def test_a_replay_that_is_said_twice_and_moved_by_many_replays_once(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(6)])
    token = await planned(hold)
    service.error, before = None, Counter(service.calls)

    await asyncio.gather(*(hold.dead_letters.replay(token, actor="ann") for _ in range(4)))
    await asyncio.gather(*(move_plans(hold) for _ in range(4)))
    assert await states(hold, token) == {S.REPLAYING: 1, S.VALIDATED: 5}
    async with hold.worker(poll=0.05):
        await until(lambda: _verified(hold, 1))
        for _ in range(5):
            await asyncio.gather(
                *(move_plans(hold) for _ in range(4)), hold.dead_letters.replay(token, actor="bert")
            )
            await clock.advance(timedelta(seconds=1))
            if await states(hold, token) != {S.VERIFIED: 1, S.VALIDATED: 5}:
                break
        for job_id in ids:
            assert (await hold.wait(job_id, timeout=TIMEOUT)).status is Status.COMPLETED

    assert Counter(service.calls) - before == dict.fromkeys(range(6), 1)
    assert [letter.replays for letter in await hold.dead_letters.list(ALL)] == [1] * 6


@pytest.mark.clause("OPS-2")
async def test_a_filter_replays_many_and_a_dry_run_shows_which(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    @hold.job("other", attempts=1)
    async def other() -> None:
        raise Permanent("no")

    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await review.submit(number) for number in range(3)])
        [unrelated] = await all_failed(hold, [await other.submit()])
        selected = LetterFilter(error_class="UPSTREAM_5XX", stage="llm", limit=100)

        triaged = await hold.dead_letters.triage(selected, "transient", actor="ann", dry_run=True)
        assert (sorted(triaged.done), triaged.refused) == (ids, {})
        assert {letter.state for letter in await hold.dead_letters.list()} == {S.NEW}
        await remediated(hold, selected)
        dry = await hold.dead_letters.plan(selected, safe="keyed", actor="ann", dry_run=True)
        assert (dry.token, sorted(dry.ready)) == (None, ids)
        assert [check.detail for check in dry.checks[ids[0]] if check.what == "stages"] == ["kept: fetch"]
        assert {letter.state for letter in await hold.dead_letters.list(selected)} == {S.REMEDIATED}

        service.error = None
        plan = await hold.dead_letters.plan(selected, safe="keyed", actor="ann")
        assert plan.token is not None
        await replayed(hold, clock, plan.token)

    assert {letter.state for letter in await hold.dead_letters.list(selected)} == {S.VERIFIED}
    assert (await letter_of(hold, unrelated)).state is S.NEW


@pytest.mark.clause("OPS-3")
@pytest.mark.parametrize(
    ("again", "escalated"),
    [
        (Permanent("no", error_class=ErrorClass.POLICY_REJECTED), True),
        (Permanent("no", error_class=ErrorClass.NOT_FOUND), False),
        (Retryable("no", error_class=ErrorClass.UPSTREAM_5XX), False),
    ],
    ids=["the same class", "another class", "one that passes"],
)
async def test_a_replay_that_fails_in_the_same_way_is_escalated_if_no_retry_can_repair_it(
    hold: Holdfast, service: Service, clock: DatabaseClock, *, again: Exception, escalated: bool
) -> None:
    received: list[Ticket] = []
    hold.on_ticket(received.append)
    review = two_stages(hold, Service(), service)
    service.error = Permanent("no", error_class=ErrorClass.POLICY_REJECTED)
    job_id = await failed(hold, review, 1)
    await notify_tickets(hold)
    token = await planned(hold, job_id)
    service.error = again
    async with hold.worker(poll=0.05):
        await replayed(hold, clock, token)
        letter = await in_letter_state(hold, job_id, S.NEW)
    await notify_tickets(hold)

    assert (letter.escalated, letter.deaths, letter.replays) == (escalated, 2, 1)
    kind = TicketKind.ESCALATED if escalated else TicketKind.DEAD_LETTER
    assert [ticket.kind for ticket in received] == [TicketKind.DEAD_LETTER, kind]
    assert [ticket.id for ticket in received] == [f"{job_id}:1", f"{job_id}:2"]
    assert (received[1].level == "page") is escalated
    assert (letter.cause, letter.evidence, letter.safe) == (None, None, None), "all of it starts anew"
    assert (letter.first_reason, letter.stage) == (ErrorClass.POLICY_REJECTED, "llm")
    found = await hold.dead_letters.list(LetterFilter(escalated=True))
    assert [one.job_id for one in found] == ([job_id] if escalated else [])
