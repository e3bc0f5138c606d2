"""The outbox of every store: messages in order, leases of partitions, what is held and released."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.messages.broker_message import Route
from holdfast.core.messages.dead_message import PUBLISH
from holdfast.core.messages.outbox import (
    PROBE,
    RETRIES,
    DueMessage,
    MessageFilter,
    MessageStatus,
    MessageTransition,
    NewMessage,
    PartitionLease,
    after_refusal,
    held_behind,
    held_for,
    published,
)
from holdfast.errors import BrokerUnavailable, MessageNotFound, MessageRefused, RouteRefused
from holdfast.ports import Hint, HintKind, Store
from holdfast.ports.messages.outbox import OutboxStats, Probe, SettledMessages
from holdfast.wiring.system import SystemIds
from tests.builders import a_failure, a_job, a_message
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, TIMEOUT, a_claim

NOTE = {"action": "retried", "actor": "kim", "reason": "the exchange is there"}
ROUTE = Route("rabbitmq", "vstep.exchange", "grading.request")
WEEK = timedelta(days=7)

_ids = SystemIds()


async def added(store: Store, *messages: NewMessage) -> list[str]:
    await store.outbox.add(messages)
    return [message.id for message in messages]


async def leased(store: Store, relay: str = "relay") -> list[PartitionLease]:
    return await store.outbox.lease_partitions(relay, lease=LEASE)


async def due(store: Store, leases: Sequence[PartitionLease]) -> list[DueMessage]:
    return (await store.outbox.due(leases)).messages


def refused(message: DueMessage, error: Exception | None = None) -> MessageTransition:
    change = after_refusal(
        message,
        ROUTE,
        error or MessageRefused("too large"),
        a_failure(message="too large"),
        dead_id=_ids.job_id(),
        roll=0.5,
    )
    assert change is not None
    return change


async def settled(store: Store, leases: Sequence[PartitionLease], *changes: MessageTransition) -> set[str]:
    return set((await store.outbox.settle(leases, changes)).written)


async def spent(
    store: Store, clock: DatabaseClock, leases: Sequence[PartitionLease], message_id: str
) -> None:
    """Refuse a message until its attempts are spent."""
    for _ in range(RETRIES.attempts):
        [message] = [each for each in await due(store, leases) if each.id == message_id]
        assert await settled(store, leases, refused(message)) == {message_id}
        await clock.advance(timedelta(seconds=30))
        leases = await leased(store)


@pytest.mark.clause("OUT-3")
async def test_the_oldest_messages_come_first_and_a_hundred_at_most(store: Store) -> None:
    ids = await added(store, *(a_message(f"sub_{number}") for number in range(250)))
    leases = await leased(store)

    first = await due(store, leases)
    await settled(store, leases, *map(published, first))
    second = await due(store, leases)

    assert [message.id for message in first] == ids[:100]
    assert [message.id for message in second] == ids[100:200]


@pytest.mark.clause("OUT-3")
async def test_a_published_message_has_its_time_and_is_not_read_again(store: Store) -> None:
    [message_id] = await added(store, a_message())
    leases = await leased(store)
    [message] = await due(store, leases)

    await settled(store, leases, published(message))

    stored = await store.outbox.get(message_id)
    assert (stored.status, stored.retry_count) == (MessageStatus.PUBLISHED, 0)
    assert stored.processed_at is not None
    assert await due(store, leases) == []


@pytest.mark.parametrize("together", [1, 2])
async def test_a_relay_reads_what_was_stored(store: Store, together: int) -> None:
    new = a_message(message_id="r1", payload='{"a": [1, "ü"]}')._replace(
        headers='{"traceparent": "00-x"}', exchange="other", routing_key="there", trace="00-x"
    )
    await added(store, new, *(a_message("sub_2") for _ in range(together - 1)))

    message, *others = await due(store, await leased(store))

    assert len(others) == together - 1
    assert json.loads(message.payload) == {"a": [1, "ü"]}
    assert message.aggregate == ("Submission", "sub_1")
    assert (message.message_id, message.headers) == ("r1", '{"traceparent": "00-x"}')
    assert (message.exchange, message.routing_key, message.trace) == ("other", "there", "00-x")
    assert (message.message_type, message.retry_count, message.behind) == ("grading.request", 0, None)
    assert timedelta(0) <= message.waited < timedelta(minutes=1)


async def test_a_message_that_is_sent_again_is_stored_once(store: Store) -> None:
    message = a_message()

    await store.outbox.add([message])
    await store.outbox.add([message, a_message("sub_2")])

    assert (await store.outbox.stats()).pending == 2


async def test_of_two_messages_with_one_key_the_first_is_stored(store: Store) -> None:
    first = a_message(key="job:1", payload='{"a": 1}')

    await added(store, first, a_message(key="job:1", payload='{"a": 2}'), a_message(key="job:2"))
    await added(store, a_message(key="job:1", payload='{"a": 3}'))

    found = await store.outbox.find(MessageFilter())
    assert len(found) == 2
    assert json.loads((await store.outbox.get(first.id)).payload) == {"a": 1}


@pytest.mark.clause("OUT-3")
async def test_a_refused_message_is_retried_later_and_others_go_on(
    store: Store, clock: DatabaseClock
) -> None:
    [bad, good] = await added(store, a_message("sub_1"), a_message("sub_2"))
    leases = await leased(store)
    [first, _] = await due(store, leases)

    await settled(store, leases, refused(first))
    meanwhile = await store.outbox.due(leases)
    await clock.advance(timedelta(seconds=2.5))
    later = await due(store, leases)

    stored = await store.outbox.get(bad)
    assert (stored.status, stored.retry_count, stored.error_message) == (
        MessageStatus.PENDING,
        1,
        "too large",
    )
    assert [message.id for message in meanwhile.messages] == [good]
    assert meanwhile.next_due is not None
    assert timedelta(seconds=1) < meanwhile.next_due <= timedelta(seconds=2)
    assert [(message.id, message.retry_count) for message in later] == [(bad, 1), (good, 0)]


@pytest.mark.clause("OUT-3")
async def test_a_message_whose_attempts_are_spent_fails_and_becomes_a_dead_letter(
    store: Store, clock: DatabaseClock
) -> None:
    [message_id] = await added(store, a_message())

    await spent(store, clock, await leased(store), message_id)

    stored = await store.outbox.get(message_id)
    assert (stored.status, stored.retry_count) == (MessageStatus.FAILED, 5)
    assert await due(store, await leased(store)) == []
    [job_id] = await store.ids_between(
        "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", limit=9
    )
    job = await store.get(job_id)
    assert (job.name, json.loads(job.args), job.status) == (PUBLISH, {"outbox_id": message_id}, "failed")


@pytest.mark.clause("OUT-3")
async def test_a_transition_that_is_sent_again_spends_no_second_attempt(store: Store) -> None:
    [message_id] = await added(store, a_message())
    leases = await leased(store)
    [message] = await due(store, leases)
    change = refused(message)

    assert await settled(store, leases, change) == {message_id}
    assert await settled(store, leases, change) == set()

    assert (await store.outbox.get(message_id)).retry_count == 1


@pytest.mark.clause("OUT-3")
async def test_a_poisoned_message_holds_back_its_own_aggregate_only(
    store: Store, clock: DatabaseClock
) -> None:
    [bad, behind, other] = await added(store, a_message("sub_1"), a_message("sub_1"), a_message("sub_2"))
    await spent(store, clock, await leased(store), bad)
    leases = await leased(store)

    found = {message.id: message for message in await due(store, leases)}

    assert set(found) == {behind, other}
    assert (found[behind].behind, found[other].behind) == (bad, None)


@pytest.mark.clause("OUT-3")
async def test_what_is_behind_a_poisoned_message_is_walked_over_once(
    store: Store, clock: DatabaseClock
) -> None:
    [bad, behind] = await added(store, a_message("sub_1"), a_message("sub_1"))
    await spent(store, clock, await leased(store), bad)
    leases = await leased(store)
    [message] = await due(store, leases)

    await settled(store, leases, held_behind(message))

    assert await due(store, leases) == []
    assert (await store.outbox.get(behind)).held_by == f"message:{bad}"


@pytest.mark.clause("OUT-3")
async def test_a_retried_message_holds_back_its_aggregate_until_it_is_published(
    store: Store, clock: DatabaseClock
) -> None:
    [first, second] = await added(store, a_message(), a_message())
    leases = await leased(store)
    [one, two] = await due(store, leases)
    await settled(store, leases, refused(one))
    [two] = await due(store, leases)
    assert two.behind == first
    await settled(store, leases, held_behind(two))
    await clock.advance(timedelta(seconds=5))

    [one] = await due(store, leases)
    await settled(store, leases, published(one))
    [two] = await due(store, leases)

    assert (one.id, one.retry_count) == (first, 1)
    assert (two.id, two.behind) == (second, None)


@pytest.mark.clause("OUT-3")
@pytest.mark.parametrize("action", ["retry", "skip"])
async def test_an_operator_who_retries_or_skips_lets_the_aggregate_go_on(
    store: Store, clock: DatabaseClock, action: str
) -> None:
    [bad, behind] = await added(store, a_message("sub_1"), a_message("sub_1"))
    await spent(store, clock, await leased(store), bad)
    leases = await leased(store)
    await settled(store, leases, *map(held_behind, await due(store, leases)))

    change = store.outbox.retry if action == "retry" else store.outbox.skip
    changed = await change([bad], note=NOTE)

    assert changed == [bad]
    stored = await store.outbox.get(bad)
    assert stored.note == NOTE
    if action == "retry":
        assert (stored.status, stored.retry_count) == (MessageStatus.PENDING, 0)
        [again] = await due(store, leases)
        assert again.id == bad
        await settled(store, leases, published(again))
    [message] = await due(store, leases)
    assert (message.id, message.behind) == (behind, None)


async def test_only_failed_messages_are_retried_and_no_published_one_is_skipped(store: Store) -> None:
    [waiting, done] = await added(store, a_message("sub_1"), a_message("sub_2"))
    leases = await leased(store)
    await settled(
        store, leases, *(published(message) for message in await due(store, leases) if message.id == done)
    )

    assert await store.outbox.retry([waiting, done], note=NOTE) == []
    assert await store.outbox.skip([waiting, done], note=NOTE) == [waiting]

    assert await due(store, leases) == []


async def test_a_message_that_is_held_while_an_operator_skips_the_one_ahead_is_not_left_behind(
    store: Store, other_store: Store
) -> None:
    once = RetryPolicy(attempts=1, backoff=Backoff.none())
    for number in range(10):
        [bad, behind] = await added(store, a_message(f"sub_{number}"), a_message(f"sub_{number}"))
        leases = await leased(store)
        first = next(message for message in await due(store, leases) if message.id == bad)
        failed = after_refusal(
            first, ROUTE, MessageRefused(""), a_failure(), dead_id=_ids.job_id(), roll=0, policy=once
        )
        assert failed is not None
        await settled(store, leases, failed)
        follower = next(message for message in await due(store, leases) if message.id == behind)

        await asyncio.gather(
            store.outbox.settle(leases, [held_behind(follower)]), other_store.outbox.skip([bad], note=NOTE)
        )

        assert behind in [message.id for message in await due(store, leases) if message.behind is None]


async def test_a_message_is_not_held_behind_one_that_was_published_meanwhile(store: Store) -> None:
    await added(store, a_message(), a_message())
    leases = await leased(store)
    [one, two] = await due(store, leases)
    await settled(store, leases, published(one))

    written = await settled(store, leases, held_behind(two._replace(behind=one.id)))

    assert written == set()
    assert [message.id for message in await due(store, leases)] == [two.id]


async def test_a_message_that_is_held_and_released_in_one_batch_is_released(store: Store) -> None:
    await added(store, a_message(), a_message())
    leases = await leased(store)
    [one, two] = await due(store, leases)

    await settled(store, leases, held_behind(two._replace(behind=one.id)), published(one))

    assert [message.id for message in await due(store, leases)] == [two.id]


@pytest.mark.clause("OUT-3")
async def test_a_refused_route_is_blocked_once_and_holds_its_messages(store: Store) -> None:
    await added(store, a_message("sub_1"), a_message("sub_2"), a_message("sub_3"))
    leases = await leased(store)
    one, two, three = await due(store, leases)
    error = RouteRefused("no queue is bound")

    first = await store.outbox.settle(leases, [refused(one, error), refused(two, error)])
    again = await store.outbox.settle(leases, [held_for(three, ROUTE)])

    assert first.blocked == {str(ROUTE)}
    assert again == SettledMessages(frozenset({three.id}))
    left = await store.outbox.due(leases)
    assert left.messages == []
    assert left.blocked == {str(ROUTE)}
    [route] = await store.outbox.routes()
    assert (route.route, route.error, route.held) == (str(ROUTE), "too large", 3)
    assert (await store.outbox.get(one.id)).retry_count == 0


@pytest.mark.clause("OUT-3")
async def test_a_blocked_route_is_tried_with_its_oldest_message_at_intervals(
    store: Store, clock: DatabaseClock
) -> None:
    await added(store, a_message("sub_1"), a_message("sub_2"))
    leases = await leased(store)
    await settled(store, leases, *(refused(each, RouteRefused("")) for each in await due(store, leases)))
    oldest = (await store.outbox.find(MessageFilter()))[-1]

    early = await store.outbox.probes(leases, again=PROBE)
    await clock.advance(PROBE)
    [probe] = await store.outbox.probes(leases, again=PROBE)
    none = await store.outbox.probes(leases, again=PROBE)
    await clock.advance(PROBE)
    [again] = await store.outbox.probes(leases, again=PROBE)

    assert (early, none) == ([], [])
    assert probe.message is not None
    assert (probe.route, probe.message.id) == (str(ROUTE), oldest.id)
    assert again.message is not None
    assert again.message.id == oldest.id


async def test_a_route_that_works_again_releases_its_messages(store: Store, clock: DatabaseClock) -> None:
    await added(store, a_message("sub_1"), a_message("sub_2"))
    leases = await leased(store)
    await settled(store, leases, *(refused(each, RouteRefused("")) for each in await due(store, leases)))
    await clock.advance(PROBE)
    [probe] = await store.outbox.probes(leases, again=PROBE)
    assert probe.message is not None

    await settled(store, leases, published(probe.message))
    held = await store.outbox.unblock_route(probe.route)
    released = await store.outbox.release_route(probe.route, limit=10)

    assert (held, released) == (1, 1)
    assert len(await due(store, leases)) == 1
    assert await store.outbox.routes() == []
    assert await store.outbox.unblock_route(probe.route) is None


async def test_the_messages_of_an_unblocked_route_are_released_in_batches_by_any_process(
    store: Store, other_store: Store
) -> None:
    ids = await added(store, *(a_message(f"sub_{number}") for number in range(5)))
    leases = await leased(store)
    await settled(store, leases, *(refused(each, RouteRefused("")) for each in await due(store, leases)))
    assert await store.outbox.unblock_route(str(ROUTE)) == 5

    first = await store.outbox.release_route(str(ROUTE), limit=2)
    read = await store.outbox.due(leases)
    left = await other_store.outbox.unblock_route(str(ROUTE))
    others = [await other_store.outbox.release_route(str(ROUTE), limit=2) for _ in range(2)]

    assert [message.id for message in read.messages] == ids[:2]
    assert read.unblocked == {str(ROUTE)}
    assert (read.blocked, (await store.outbox.stats()).blocked_routes) == (frozenset(), 0)
    assert (first, left, others) == (2, 3, [2, 1])
    end = await store.outbox.due(leases)
    assert ([message.id for message in end.messages], end.unblocked) == (ids, frozenset())


async def test_a_route_that_is_blocked_again_while_it_releases_its_messages_keeps_the_others(
    store: Store,
) -> None:
    await added(store, *(a_message(f"sub_{number}") for number in range(5)))
    leases = await leased(store)
    await settled(store, leases, *(refused(each, RouteRefused("")) for each in await due(store, leases)))
    await store.outbox.unblock_route(str(ROUTE))
    await store.outbox.release_route(str(ROUTE), limit=2)
    [one, two] = await due(store, leases)

    again = await store.outbox.settle(leases, [refused(one, RouteRefused("")), held_for(two, ROUTE)])
    released = await store.outbox.release_route(str(ROUTE), limit=10)

    assert again == SettledMessages(frozenset({one.id, two.id}), frozenset({str(ROUTE)}))
    assert released == 0
    [route] = await store.outbox.routes()
    assert (route.route, route.held) == (str(ROUTE), 5)


async def test_a_blocked_route_without_messages_is_returned_without_one(
    store: Store, clock: DatabaseClock
) -> None:
    [message_id] = await added(store, a_message())
    leases = await leased(store)
    await settled(store, leases, *(refused(each, RouteRefused("")) for each in await due(store, leases)))
    await store.outbox.skip([message_id], note=NOTE)
    await clock.advance(PROBE)

    [probe] = await store.outbox.probes(leases, again=PROBE)

    assert probe == Probe(str(ROUTE), None)


async def test_a_message_is_not_held_for_a_route_that_was_unblocked_meanwhile(store: Store) -> None:
    await added(store, a_message("sub_1"), a_message("sub_2"))
    leases = await leased(store)
    one, two = await due(store, leases)
    await settled(store, leases, refused(one, RouteRefused("")))
    await store.outbox.unblock_route(str(ROUTE))

    assert await settled(store, leases, held_for(two, ROUTE)) == set()

    await store.outbox.release_route(str(ROUTE), limit=10)
    assert len(await due(store, leases)) == 2


@pytest.mark.clause("OUT-3")
async def test_two_relays_share_the_partitions(store: Store, other_store: Store) -> None:
    alone = await leased(store, "one")
    other = await leased(other_store, "two")
    shared = await leased(store, "one")
    rest = await leased(other_store, "two")

    assert other == []
    assert len(shared) == len(rest) == len(alone) // 2
    assert {lease.number for lease in (*shared, *rest)} == {lease.number for lease in alone}


@pytest.mark.clause("OUT-3")
async def test_two_relays_read_no_message_twice_and_no_aggregate_is_divided(
    store: Store, other_store: Store
) -> None:
    ids = await added(store, *(a_message(f"sub_{number % 20}") for number in range(60)))
    await leased(store, "one")
    await leased(other_store, "two")
    mine, theirs = await leased(store, "one"), await leased(other_store, "two")

    here, there = await due(store, mine), await due(other_store, theirs)

    assert sorted(message.id for message in (*here, *there)) == sorted(ids)
    assert {message.aggregate for message in here}.isdisjoint(message.aggregate for message in there)
    order = {message_id: number for number, message_id in enumerate(ids)}
    for found in (here, there):
        assert [order[message.id] for message in found] == sorted(order[message.id] for message in found)


@pytest.mark.clause("OUT-3")
async def test_a_relay_that_lost_its_partitions_can_read_and_write_nothing(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    [message_id] = await added(store, a_message())
    slow = await leased(store, "slow")
    [message] = await due(store, slow)
    await clock.advance(LEASE)
    quick = await leased(other_store, "quick")

    written = await store.outbox.settle(slow, [published(message)])

    assert written.written == frozenset()
    assert await due(store, slow) == []
    assert (await store.outbox.get(message_id)).status is MessageStatus.PENDING
    assert [each.id for each in await due(other_store, quick)] == [message_id]
    assert await settled(other_store, quick, published(message)) == {message_id}


async def test_a_lease_that_is_extended_keeps_its_token(store: Store, clock: DatabaseClock) -> None:
    first = await leased(store)
    await clock.advance(LEASE / 2)
    second = await leased(store)
    await clock.advance(LEASE * 0.75)

    assert await leased(store, "another") == []
    assert second == first


async def test_a_relay_that_stops_gives_its_partitions_up_at_once(store: Store, other_store: Store) -> None:
    before = await leased(store, "one")
    [message] = [await added(store, a_message())]

    await store.outbox.release_partitions("one")

    after = await leased(other_store, "two")
    assert [lease.number for lease in after] == [lease.number for lease in before]
    assert await due(store, before) == []
    assert [each.id for each in await due(other_store, after)] == message


async def test_relays_that_lease_at_once_never_hold_the_same_partition(
    store: Store, other_store: Store
) -> None:
    for _ in range(3):
        here, there = await asyncio.gather(leased(store, "one"), leased(other_store, "two"))

        assert {lease.number for lease in here}.isdisjoint(lease.number for lease in there)


async def test_a_broker_that_is_unavailable_leaves_nothing_to_write(store: Store) -> None:
    await added(store, a_message())
    [message] = await due(store, await leased(store))

    change = after_refusal(message, ROUTE, BrokerUnavailable("gone"), a_failure(), dead_id="", roll=0.5)

    assert change is None


async def test_messages_are_found_by_what_an_operator_knows(store: Store) -> None:
    [one, two, three] = await added(
        store, a_message("sub_1"), a_message("sub_2"), a_message("sub_2", message_type="grading.callback")
    )
    leases = await leased(store)
    await settled(
        store, leases, *(published(message) for message in await due(store, leases) if message.id == one)
    )

    async def found(message_filter: MessageFilter) -> list[str]:
        return [message.id for message in await store.outbox.find(message_filter)]

    assert await found(MessageFilter()) == [three, two, one]
    assert await found(MessageFilter(limit=1)) == [three]
    assert await found(MessageFilter(status=MessageStatus.PUBLISHED)) == [one]
    assert await found(MessageFilter(message_type="grading.callback")) == [three]
    assert await found(MessageFilter(aggregate_id="sub_2", aggregate_type="Submission")) == [three, two]
    assert await found(MessageFilter(held=True)) == []
    assert await found(MessageFilter(held=False, status=MessageStatus.PENDING)) == [three, two]


async def test_messages_are_listed_in_pages_that_have_each_of_them_once(store: Store) -> None:
    together = [a_message(f"sub_{number}") for number in range(5)]  # stored at one instant
    ids = await added(store, *together)
    ids += [(await added(store, a_message("sub_2")))[0] for _ in range(3)]
    leases = await leased(store)
    half = (await due(store, leases))[::2]
    await settled(store, leases, *map(published, half))

    async def pages(message_filter: MessageFilter) -> list[str]:
        found: list[str] = []
        while page := await store.outbox.find(message_filter):
            assert len(page) <= message_filter.limit
            found += [message.id for message in page]
            message_filter = replace(message_filter, before=page[-1].id)
        return found

    assert await pages(MessageFilter(limit=3)) == ids[::-1]
    published_ones = [message.id for message in half][::-1]
    assert await pages(MessageFilter(status=MessageStatus.PUBLISHED, limit=1)) == published_ones
    with pytest.raises(MessageNotFound, match="01900000-0000"):
        await store.outbox.find(MessageFilter(before="01900000-0000-7000-8000-00000000000a"))


@pytest.mark.parametrize("unknown", ["01900000-0000-7000-8000-00000000000a", "r1"])
async def test_a_message_that_is_not_there_is_a_clear_error(store: Store, unknown: str) -> None:
    with pytest.raises(MessageNotFound, match=unknown):
        await store.outbox.get(unknown)


async def test_the_outbox_is_counted(store: Store, clock: DatabaseClock) -> None:
    assert await store.outbox.stats() == OutboxStats(0, 0, 0, None, 0)
    await added(store, a_message("sub_1"), a_message("sub_2"), a_message("sub_3"))
    leases = await leased(store)
    one, _, _ = await due(store, leases)
    await settled(store, leases, refused(one, RouteRefused("")))
    await clock.advance(timedelta(minutes=1))

    pending, held, failed, oldest, routes = await store.outbox.stats()

    assert (pending, held, failed, routes) == (3, 1, 0, 1)
    assert oldest is not None
    assert timedelta(minutes=1) <= oldest < timedelta(minutes=2)


@pytest.mark.clause("OUT-3")
async def test_published_and_skipped_messages_are_deleted_after_their_retention(
    store: Store, clock: DatabaseClock
) -> None:
    [done, given_up, waiting] = await added(store, *(a_message(f"sub_{number}") for number in range(3)))
    leases = await leased(store)
    await settled(
        store, leases, *(published(message) for message in await due(store, leases) if message.id == done)
    )
    await store.outbox.skip([given_up], note=NOTE)

    early = await store.outbox.purge(older_than=WEEK, limit=9)
    await clock.advance(WEEK)
    first = await store.outbox.purge(older_than=WEEK, limit=1)
    second = await store.outbox.purge(older_than=WEEK, limit=9)

    assert (early, first, second) == (0, 1, 1)
    assert [message.id for message in await store.outbox.find(MessageFilter())] == [waiting]


async def test_what_a_live_job_has_published_is_kept_with_its_key(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store, a_job())
    await added(store, a_message(key="k", job_id=claim.id))
    leases = await leased(store)
    await settled(store, leases, *map(published, await due(store, leases)))
    await clock.advance(WEEK)

    assert await store.outbox.purge(older_than=WEEK, limit=9) == 0

    await added(store, a_message(key="k", job_id=claim.id))
    assert (await store.outbox.stats()).pending == 0


async def test_a_stored_message_is_hinted_at(store: Store, other_store: Store) -> None:
    heard = asyncio.Event()

    def receive(hint: Hint) -> None:
        heard.set()

    stop = other_store.listen(receive, (HintKind.MESSAGE,))
    async with asyncio.timeout(TIMEOUT):
        while not heard.is_set():  # the listener may still be connecting
            await added(store, a_message())
            await asyncio.wait([asyncio.ensure_future(heard.wait())], timeout=0.2)
    stop()
