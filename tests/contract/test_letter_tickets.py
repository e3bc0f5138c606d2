"""Each failure raises a ticket, which one worker takes and notifies of; an alarm raises one each time that it begins."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import ErrorClass
from holdfast.ports import Store
from holdfast.ports.dead_letters import TicketRow
from holdfast.types import Failure
from tests.builders import a_failure, a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import a_completed_job, submitted
from tests.contract.stored_letters import a_failure_at, a_letter, a_replay, completed, failed

LEASE = timedelta(minutes=1)
SOON = timedelta(seconds=20)
HOUR = timedelta(hours=1)


def a_failure_of(level: str | None) -> Failure:
    """Make a failure as a worker leaves it whose table names *level*; without one, as an older worker does."""
    return replace(a_failure(), context={"level": level} if level else {})


async def taken(store: Store, limit: int = 9) -> list[TicketRow]:
    return await store.tickets.take(limit=limit, lease=LEASE)


@pytest.mark.clause("DLQ-4")
async def test_a_letter_has_a_ticket(store: Store) -> None:
    job_id = await a_letter(store)

    [ticket] = await taken(store)

    letter = await store.dead_letters.get(job_id)
    assert ticket == TicketRow(
        f"{job_id}:1", "dead letter", letter.last_failure_at, job_id, letter.fingerprint, {}
    )


@pytest.mark.clause("DLQ-4")
async def test_each_failure_of_a_job_has_a_ticket_of_its_own(store: Store) -> None:
    job_id = await a_letter(store, failure=a_failure_at("shop:pay", ErrorClass.BUG))
    await failed(store, await a_replay(store, job_id), a_failure_at("shop:pay", ErrorClass.BUG))

    tickets = await taken(store)

    assert sorted((ticket.id, ticket.kind) for ticket in tickets) == [
        (f"{job_id}:1", "dead letter"),
        (f"{job_id}:2", "escalated"),
    ]


async def test_no_ticket_is_raised_by_jobs_that_end_well(store: Store) -> None:
    await a_completed_job(store)
    [queued] = await submitted(store, a_job())
    await store.cancel(queued)

    assert await taken(store) == []


async def test_a_replay_that_went_well_raises_none(store: Store) -> None:
    job_id = await a_letter(store)
    await store.tickets.mark_notified([f"{job_id}:1"])

    await completed(store, await a_replay(store, job_id))

    assert await taken(store) == []


async def test_the_oldest_tickets_are_taken_first_and_no_more_than_asked_for(
    store: Store, clock: DatabaseClock
) -> None:
    ids = []
    for _ in range(3):
        ids.append(await a_letter(store))
        await clock.advance(timedelta(seconds=1))

    assert [ticket.job_id for ticket in await taken(store, limit=2)] == ids[:2]
    assert [ticket.job_id for ticket in await taken(store, limit=2)] == ids[2:]


@pytest.mark.clause("DLQ-4")
async def test_the_most_urgent_tickets_are_taken_first_whatever_came_before(store: Store) -> None:
    levels = ["review", "nothing a database knows", "page", None, "alert"]
    ids = {await a_letter(store, failure=a_failure_of(level)): level for level in levels}
    await store.tickets.raise_alarm("archive failed", {})

    tickets = [await taken(store, limit=1) for _ in range(6)]

    found = [ids[ticket.job_id] if ticket.job_id else ticket.kind for [ticket] in tickets]
    assert found == ["page", "nothing a database knows", None, "alert", "archive failed", "review"]


@pytest.mark.clause("DLQ-4")
async def test_the_most_urgent_tickets_come_first_among_those_that_are_taken_together(store: Store) -> None:
    quiet, loud = [await a_letter(store, failure=a_failure_of(level)) for level in ("review", "page")]

    assert [ticket.job_id for ticket in await taken(store)] == [loud, quiet]


@pytest.mark.clause("DLQ-4")
async def test_what_is_escalated_is_as_urgent_as_a_page(store: Store) -> None:
    alert = await a_letter(store, failure=a_failure_of("alert"))
    again = await a_letter(store, failure=a_failure_at("shop:pay", ErrorClass.BUG))
    await store.tickets.mark_notified([f"{again}:1"])
    await failed(store, await a_replay(store, again), a_failure_at("shop:pay", ErrorClass.BUG))

    assert [ticket.id for ticket in await taken(store)] == [f"{again}:2", f"{alert}:1"]


@pytest.mark.clause("DLQ-4")
async def test_urgent_tickets_that_are_not_delivered_step_aside_for_the_others(
    store: Store, clock: DatabaseClock
) -> None:
    pages = [await a_letter(store, failure=a_failure_of("page")) for _ in range(3)]
    reviews = [await a_letter(store, failure=a_failure_of("review")) for _ in range(3)]
    delivered: list[str | None] = []

    for _ in range(12):
        tickets = await taken(store, limit=2)
        reached = [ticket for ticket in tickets if ticket.job_id not in pages]
        delivered += [ticket.job_id for ticket in reached]
        await store.tickets.mark_notified([ticket.id for ticket in reached])
        await clock.advance(LEASE)

    assert delivered == reviews


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_one_worker_has_taken_is_not_given_to_another(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    await a_letter(store)
    [ticket] = await taken(store)

    assert await taken(other_store) == []
    await clock.advance(2 * LEASE)

    assert await taken(other_store) == [ticket]


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_was_notified_is_not_given_again(store: Store, clock: DatabaseClock) -> None:
    await a_letter(store)
    [ticket] = await taken(store)

    await store.tickets.mark_notified([ticket.id])
    await clock.advance(2 * LEASE)

    assert await taken(store) == []


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_is_not_delivered_is_due_again_each_time_after_twice_as_long(
    store: Store, clock: DatabaseClock
) -> None:
    await a_letter(store)
    [ticket] = await taken(store)

    for leases in (1, 2, 4, 8, 16, 32, 64, 64):
        await clock.advance(leases * LEASE - SOON)
        assert await taken(store) == []
        await clock.advance(2 * SOON)
        assert await taken(store) == [ticket]


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_is_in_a_log_says_so_to_the_worker_that_takes_it_next(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    logged, unlogged = sorted([await a_letter(store), await a_letter(store)])
    assert [ticket.logged for ticket in await taken(store)] == [False, False]
    await store.tickets.mark_logged([f"{logged}:1"])
    await clock.advance(2 * LEASE)

    again = await taken(other_store)

    assert {ticket.job_id: ticket.logged for ticket in again} == {logged: True, unlogged: False}


@pytest.mark.clause("DLQ-4")
async def test_a_quiet_ticket_is_not_given_again_and_does_not_keep_its_group_quiet(
    store: Store, clock: DatabaseClock
) -> None:
    loud, quiet = [await a_letter(store, failure=a_failure_at("shop:pay")) for _ in range(2)]
    group = (await store.dead_letters.get(loud)).fingerprint
    await store.tickets.mark_notified([f"{loud}:1"])
    await clock.advance(timedelta(hours=23))
    assert await store.tickets.groups_notified([group], within=24 * HOUR) == {group}
    await store.tickets.mark_notified([f"{quiet}:1"], quiet=True)
    await clock.advance(2 * HOUR)

    assert await store.tickets.groups_notified([group], within=24 * HOUR) == set()
    assert await taken(store) == []


async def test_a_group_counts_as_notified_for_the_time_that_the_caller_gives(
    store: Store, clock: DatabaseClock
) -> None:
    notified = await a_letter(store, failure=a_failure_at("shop:pay"))
    pending = await a_letter(store, failure=a_failure_at("shop:send"))
    await store.tickets.mark_notified([f"{notified}:1"])
    groups = [(await store.dead_letters.get(job_id)).fingerprint for job_id in (notified, pending)]

    assert await store.tickets.groups_notified(groups, within=HOUR) == {groups[0]}
    await clock.advance(2 * HOUR)

    assert await store.tickets.groups_notified(groups, within=HOUR) == set()
    assert await store.tickets.groups_notified(groups, within=3 * HOUR) == {groups[0]}
    assert await store.tickets.groups_notified([], within=3 * HOUR) == set()


async def test_an_alarm_raises_one_ticket_each_time_that_it_comes_to_it(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    kind, facts = "many dead letters", {"letters": 101}

    assert await store.tickets.raise_alarm(kind, facts)
    assert not await other_store.tickets.raise_alarm(kind, {"letters": 102})
    [ticket] = await taken(store)
    assert (ticket.kind, ticket.job_id, ticket.fingerprint) == (kind, None, None)
    assert dict(ticket.facts) == facts
    assert ticket.id.startswith("alarm:many dead letters:")
    await store.tickets.mark_notified([ticket.id])

    assert await store.tickets.clear_alarm(kind)
    assert not await other_store.tickets.clear_alarm(kind)
    await clock.advance(HOUR)
    assert await other_store.tickets.raise_alarm(kind, facts)

    [again] = await taken(store)
    assert again.id != ticket.id


async def test_failures_are_counted_by_the_time_of_the_last(store: Store, clock: DatabaseClock) -> None:
    first, _ = await a_letter(store), await a_letter(store)
    await clock.advance(2 * HOUR)
    assert (await store.dead_letters.count_since(HOUR), await store.dead_letters.count_since(3 * HOUR)) == (
        0,
        2,
    )

    await failed(store, await a_replay(store, first))

    assert (await store.dead_letters.count_since(HOUR), await store.dead_letters.count_since(5 * HOUR)) == (
        1,
        2,
    )
