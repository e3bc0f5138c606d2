"""Every letter has a ticket, and each hook gets it at least once, also if another hook fails."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import ErrorClass, Holdfast, JobFunction, Permanent, Retryable
from holdfast.engine.dead_letters.ticket_notifier import BATCH, LEASE
from holdfast.errors import ConfigError
from holdfast.operations import Ticket, TicketKind
from holdfast.telemetry.metric_registry import MetricRegistry
from tests.contract.conftest import Database, DatabaseClock, FakeClock, Logger
from tests.contract.letters import (
    A_MINUTE_LATER,
    a_notifier,
    all_failed,
    failed,
    notify_tickets,
    opened,
    planned,
    replayed,
)
from tests.contract.services import Service, until
from tests.contract.steps import TIMEOUT

DAY = timedelta(days=1, seconds=1)
NINE_SECONDS = timedelta(seconds=9)
AN_HOUR_LATER = timedelta(minutes=64, seconds=1)
"""When a hook is called again at the latest, however often it did not take a ticket."""


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger) as made:
        yield made


def grade_of(hold: Holdfast, service: Service) -> JobFunction[[int], int]:
    """Declare a job that does what its service does."""

    @hold.job("grade")
    async def grade(number: int) -> int:
        return await service.call(number)

    return grade


@pytest.fixture
def grade(hold: Holdfast, service: Service) -> JobFunction[[int], int]:
    """A job that cannot succeed."""
    service.error = Permanent("no such essay", error_class=ErrorClass.NOT_FOUND)
    return grade_of(hold, service)


@pytest.mark.clause("DLQ-4")
async def test_each_letter_has_a_ticket_that_is_given_to_plain_and_to_async_functions(
    hold: Holdfast, grade: JobFunction[[int], int]
) -> None:
    by_plain: list[Ticket] = []
    by_async: list[Ticket] = []
    threads: set[int] = set()

    @hold.on_ticket
    def plain(ticket: Ticket) -> None:
        threads.add(threading.get_ident())
        by_plain.append(ticket)

    @hold.on_ticket
    async def waiting(ticket: Ticket) -> None:
        await asyncio.sleep(0)
        by_async.append(ticket)

    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await grade.submit(number) for number in range(3)])
    await notify_tickets(hold)
    await notify_tickets(hold)

    assert sorted(ticket.job_id or "" for ticket in by_plain) == ids
    assert by_plain == by_async
    assert threading.get_ident() not in threads, "a plain function may block"
    first = by_plain[0]
    assert (first.kind, first.level) == (TicketKind.DEAD_LETTER, "review")
    assert first.title == "job grade failed: no such essay"
    assert first.to_dict()["first_reason"] == "NOT_FOUND"


@pytest.mark.clause("DLQ-4")
async def test_each_letter_is_logged_with_its_first_reason(
    hold: Holdfast, logger: Logger, service: Service
) -> None:
    grade = grade_of(hold, service)
    service.error = Retryable("no answer", error_class=ErrorClass.NETWORK_TIMEOUT)
    job_id = await failed(hold, grade, 1)
    await notify_tickets(hold)

    [line] = logger.lines("ticket raised")
    assert (line["level"], line["job_id"], line["first_reason"]) == ("warning", job_id, "NETWORK_TIMEOUT")
    assert (line["kind"], line["ticket_level"]) == ("dead letter", "review")
    assert line["title"] == "job grade failed: no answer"


@pytest.mark.clause("DLQ-4")
async def test_a_page_is_logged_as_an_error(hold: Holdfast, logger: Logger, service: Service) -> None:
    service.error = KeyError("essay")
    await failed(hold, grade_of(hold, service), 1)
    await notify_tickets(hold)

    assert [(line["level"], line["ticket_level"]) for line in logger.lines("ticket raised")] == [
        ("error", "page")
    ]


@pytest.mark.clause("DLQ-4")
async def test_a_worker_notifies_of_tickets_that_another_has_left(
    hold: Holdfast, grade: JobFunction[[int], int], database: Database, logger: Logger
) -> None:
    job_id = await failed(hold, grade, 1)
    received: asyncio.Queue[Ticket] = asyncio.Queue()

    async with Holdfast(database.url, logger=logger.writer) as other, asyncio.timeout(TIMEOUT):
        other.on_ticket(received.put)
        async with other.worker(poll=0.05):
            assert (await received.get()).job_id == job_id


@pytest.mark.clause("DLQ-4")
async def test_a_function_that_raises_gets_the_ticket_again_and_keeps_it_from_no_other_function(
    hold: Holdfast, grade: JobFunction[[int], int], clock: DatabaseClock, logger: Logger
) -> None:
    attempted: list[str] = []
    taken: list[str] = []

    @hold.on_ticket
    def fails_at_first(ticket: Ticket) -> None:
        attempted.append(ticket.id)
        if len(attempted) <= 2:
            raise RuntimeError("the pager is off")

    @hold.on_ticket
    def takes(ticket: Ticket) -> None:
        taken.append(ticket.id)

    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await grade.submit(number) for number in range(2)])
    await notify_tickets(hold)
    assert sorted(taken) == [f"{job_id}:1" for job_id in ids]
    assert [line["message"] for line in logger.lines("ticket notification failed")] == [
        "RuntimeError: the pager is off"
    ] * 2
    await notify_tickets(hold)
    assert len(attempted) == 2, "not at once"

    for _ in range(2):
        await clock.advance(A_MINUTE_LATER)
        await notify_tickets(hold)

    assert sorted(attempted) == sorted(2 * [f"{job_id}:1" for job_id in ids])


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_a_function_does_not_take_is_logged_and_counted_once_by_all_workers(
    database: Database, logger: Logger, service: Service, clock: DatabaseClock
) -> None:
    metrics = MetricRegistry()
    async with opened(database, logger, metrics=metrics) as hold:

        @hold.on_ticket
        def broken(_: Ticket) -> None:
            raise RuntimeError("the pager is off")

        service.error = Permanent("no such essay")
        await failed(hold, grade_of(hold, service), 1)
        workers = [a_notifier(hold), a_notifier(hold)]
        for tries in range(4):
            await workers[tries % 2].run_once()
            await clock.advance(AN_HOUR_LATER)

    assert len(logger.lines("ticket notification failed")) == 4
    assert len(logger.lines("ticket raised")) == 1
    assert metrics.value("tickets", level="review") == 1


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_whose_worker_died_before_the_notification_is_logged_by_another(
    hold: Holdfast, grade: JobFunction[[int], int], logger: Logger, clock: DatabaseClock
) -> None:
    job_id = await failed(hold, grade, 1)
    store: Any = hold.runtime.store
    assert await store.behind.tickets.take(limit=9, lease=timedelta(minutes=1))

    await clock.advance(A_MINUTE_LATER)
    await notify_tickets(hold)

    assert [line["job_id"] for line in logger.lines("ticket raised")] == [job_id]


@pytest.mark.clause("DLQ-4")
async def test_a_function_that_has_taken_a_ticket_is_not_called_again_because_another_has_not(
    hold: Holdfast, grade: JobFunction[[int], int], clock: DatabaseClock
) -> None:
    taken: list[str] = []
    attempted: list[str] = []
    hold.on_ticket(lambda ticket: taken.append(ticket.id))

    @hold.on_ticket
    async def fails_at_first(ticket: Ticket) -> None:
        attempted.append(ticket.id)
        if len(attempted) <= 3:
            raise RuntimeError("the pager is off")

    ticket_id = f"{await failed(hold, grade, 1)}:1"
    worker = a_notifier(hold)
    for _ in range(6):
        await worker.run_once()
        await clock.advance(AN_HOUR_LATER)

    assert taken == [ticket_id]
    assert attempted == [ticket_id] * 4


@pytest.mark.clause("DLQ-4")
async def test_another_worker_does_not_know_which_functions_have_taken_a_ticket_and_calls_all_of_them(
    hold: Holdfast, grade: JobFunction[[int], int], clock: DatabaseClock
) -> None:
    taken: list[str] = []
    hold.on_ticket(lambda ticket: taken.append(ticket.id))

    @hold.on_ticket
    def broken(_: Ticket) -> None:
        raise RuntimeError("the pager is off")

    ticket_id = f"{await failed(hold, grade, 1)}:1"
    await notify_tickets(hold)
    await clock.advance(A_MINUTE_LATER)
    await notify_tickets(hold)

    assert taken == [ticket_id] * 2


@pytest.mark.clause("DLQ-4")
async def test_a_page_and_a_full_archive_do_not_wait_behind_reviews(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    received: list[Ticket] = []
    hold.on_ticket(received.append)
    grade = grade_of(hold, service)
    service.error = Permanent("no")
    async with hold.worker(poll=0.05):
        await all_failed(hold, [await grade.submit(number) for number in range(BATCH)])
        service.error = KeyError("essay")
        await all_failed(hold, [await grade.submit(BATCH)])
    facts = {"title": "the disk is full", "level": "alert"}
    await hold.runtime.store.tickets.raise_alarm(TicketKind.ARCHIVE, facts)

    await notify_tickets(hold)

    assert [ticket.level for ticket in received] == ["page", "alert", *["review"] * (BATCH - 2)]


@pytest.mark.clause("DLQ-4")
async def test_pages_that_cannot_be_delivered_keep_no_review_from_being_delivered(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    reviewed: list[str] = []

    @hold.on_ticket
    def pager(ticket: Ticket) -> None:
        if ticket.level == "page":
            raise RuntimeError("the pager is off")
        reviewed.append(ticket.id)

    grade = grade_of(hold, service)
    async with hold.worker(poll=0.05):
        service.error = Permanent("no")
        ids = await all_failed(hold, [await grade.submit(number) for number in range(2)])
        service.error = KeyError("essay")
        await all_failed(hold, [await grade.submit(number) for number in range(BATCH, 2 * BATCH + 2)])
    for _ in range(4):
        await notify_tickets(hold)
        await clock.advance(timedelta(seconds=30))

    assert sorted(reviewed) == [f"{job_id}:1" for job_id in ids]


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_is_given_to_all_functions_at_once_so_that_none_waits_for_another(
    hold: Holdfast, grade: JobFunction[[int], int]
) -> None:
    together = asyncio.Barrier(3)
    taken: list[str] = []

    async def meets_the_others(ticket: Ticket) -> None:
        await together.wait()
        taken.append(ticket.id)

    for _ in range(together.parties):
        hold.on_ticket(partial(meets_the_others))
    ticket_id = f"{await failed(hold, grade, 1)}:1"

    await notify_tickets(hold)

    assert taken == [ticket_id] * together.parties


@pytest.mark.clause("DLQ-4")
async def test_no_other_worker_is_given_tickets_while_one_notifies_slowly(
    hold: Holdfast, grade: JobFunction[[int], int], clock: DatabaseClock, logger: Logger
) -> None:
    store: Any = hold.runtime.store
    watch = FakeClock()
    taken: list[str] = []

    @hold.on_ticket
    async def slow(ticket: Ticket) -> None:
        taken.append(ticket.id)
        watch.at += NINE_SECONDS
        await clock.advance(NINE_SECONDS)
        assert await store.behind.tickets.take(limit=BATCH, lease=LEASE) == [], "the lease was over"

    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, [await grade.submit(number) for number in range(BATCH)])
    worker = a_notifier(hold, clock=watch)
    begun = watch.at
    await worker.run_once()
    assert (len(taken), watch.at - begun < LEASE) == (6, True)
    await worker.run_once()
    assert len(taken) == 6, "what was not reached is due at the end of its lease"
    await clock.advance(A_MINUTE_LATER)
    await worker.run_once()

    assert logger.lines("ticket notification failed") == []
    assert sorted(taken) == [f"{job_id}:1" for job_id in ids]
    assert sorted(line["job_id"] for line in logger.lines("ticket raised")) == ids


@pytest.mark.clause("DLQ-4")
@pytest.mark.parametrize("blocks", [True, False], ids=["a thread", "the event loop"])
async def test_a_function_that_hangs_is_given_up_and_called_again(
    hold: Holdfast, grade: JobFunction[[int], int], clock: DatabaseClock, *, blocks: bool
) -> None:
    over = threading.Event()
    calls: list[str] = []
    taken: list[str] = []

    def stuck(ticket: Ticket) -> None:
        calls.append(ticket.id)
        if len(calls) == 1:
            over.wait()

    async def lost(ticket: Ticket) -> None:
        calls.append(ticket.id)
        if len(calls) == 1:
            await asyncio.Event().wait()

    async def takes(ticket: Ticket) -> None:
        taken.append(ticket.id)

    async def called() -> bool:
        return bool(calls)

    hold.on_ticket(stuck if blocks else lost)
    hold.on_ticket(takes)
    job_id = await failed(hold, grade, 1)

    await notify_tickets(hold, hook_timeout=0.1)
    await until(called)  # a thread begins when it can
    assert (calls, taken) == ([f"{job_id}:1"], [f"{job_id}:1"])
    over.set()
    await clock.advance(A_MINUTE_LATER)
    await notify_tickets(hold)
    await clock.advance(A_MINUTE_LATER)
    await notify_tickets(hold)

    assert calls == [f"{job_id}:1"] * 2


@pytest.fixture
async def grouping(
    database: Database, logger: Logger, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Holdfast]:
    """A Holdfast in which one ticket stands for all letters of a group."""
    monkeypatch.setenv("HOLDFAST_TICKETS_PER", "group")
    async with opened(database, logger) as made:
        yield made


@pytest.mark.clause("DLQ-4")
async def test_one_ticket_a_day_may_stand_for_a_group(
    grouping: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    received: list[Ticket] = []
    grouping.on_ticket(received.append)
    grade = grade_of(grouping, service)

    async def fail(count: int, error: Exception) -> None:
        service.error = error
        async with grouping.worker(poll=0.05):
            await all_failed(grouping, [await grade.submit(number) for number in range(count)])
        await notify_tickets(grouping)

    await fail(3, Permanent("no"))
    assert len(received) == 1
    await fail(2, Permanent("no"))
    assert len(received) == 1
    await fail(2, KeyError("other"))
    assert [ticket.facts["error_class"] for ticket in received] == ["UNKNOWN", "BUG"]
    await clock.advance(DAY * 2 / 3)
    await fail(1, Permanent("no"))
    assert len(received) == 2, "a quiet letter does not begin another day"
    await clock.advance(DAY / 3)
    await fail(2, Permanent("no"))
    assert [ticket.facts["error_class"] for ticket in received] == ["UNKNOWN", "BUG", "UNKNOWN"]
    assert len(await grouping.dead_letters.list()) == 10


@pytest.mark.clause("DLQ-4")
async def test_a_group_whose_ticket_no_function_took_is_notified_again(
    grouping: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    called: list[str] = []
    taken: list[str] = []

    @grouping.on_ticket
    def fails_at_first(ticket: Ticket) -> None:
        called.append(ticket.id)
        if len(called) == 1:
            raise RuntimeError("the pager is off")
        taken.append(ticket.id)

    service.error = Permanent("no")
    grade = grade_of(grouping, service)
    async with grouping.worker(poll=0.05):
        await all_failed(grouping, [await grade.submit(number) for number in range(3)])
    for _ in range(3):
        await notify_tickets(grouping)
        await clock.advance(A_MINUTE_LATER)

    assert (len(called), len(taken)) == (2, 1)


@pytest.mark.clause("DLQ-4")
@pytest.mark.clause("OPS-3")
async def test_what_is_escalated_is_notified_although_its_group_is_known(
    grouping: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    received: list[Ticket] = []
    grouping.on_ticket(received.append)
    service.error = Permanent("no", error_class=ErrorClass.POLICY_REJECTED)
    job_id = await failed(grouping, grade_of(grouping, service), 1)
    await notify_tickets(grouping)
    token = await planned(grouping, job_id)
    async with grouping.worker(poll=0.05):
        await replayed(grouping, clock, token)
    await notify_tickets(grouping)

    assert [ticket.kind for ticket in received] == [TicketKind.DEAD_LETTER, TicketKind.ESCALATED]
    assert [ticket.level for ticket in received] == ["review", "page"]


@pytest.mark.clause("DLQ-4")
@pytest.mark.parametrize(
    "error", [asyncio.CancelledError("its own"), SystemExit(3)], ids=["cancelled", "exit"]
)
async def test_a_function_that_ends_like_its_process_keeps_the_ticket_from_no_other_function(
    hold: Holdfast, grade: JobFunction[[int], int], logger: Logger, error: BaseException
) -> None:
    received: list[Ticket] = []

    @hold.on_ticket
    async def leaves(_: Ticket) -> None:
        raise error

    hold.on_ticket(received.append)
    job_id = await failed(hold, grade, 1)

    await notify_tickets(hold)

    assert [ticket.job_id for ticket in received] == [job_id]
    assert len(logger.lines("ticket notification failed")) == 1


@pytest.mark.clause("DLQ-4")
async def test_a_plain_function_that_hangs_has_one_thread_however_many_tickets_there_are(
    hold: Holdfast, grade: JobFunction[[int], int]
) -> None:
    hanging, go_on = [], threading.Event()

    @hold.on_ticket
    def hangs(ticket: Ticket) -> None:
        hanging.append(ticket.id)
        go_on.wait(TIMEOUT)

    async def hangs_somewhere() -> bool:
        return bool(hanging)

    try:
        async with hold.worker(poll=0.05):
            await all_failed(hold, [await grade.submit(number) for number in range(4)])
        await notify_tickets(hold, hook_timeout=0.01)
        await until(hangs_somewhere)
        assert len(hanging) == 1
    finally:
        go_on.set()


@pytest.mark.clause("RET-7")
async def test_a_job_that_its_deadline_ends_has_a_ticket_of_the_level_in_its_table(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    received: list[Ticket] = []
    hold.on_ticket(received.append)

    @hold.job("slow", deadline="1h", on_exhausted={"TIMEOUT": "page"})
    async def slow() -> None: ...

    await slow.submit()
    await clock.advance(timedelta(hours=2))
    await hold.runtime.store.expire(limit=1)
    await notify_tickets(hold)

    assert [(ticket.level, ticket.facts["error_class"]) for ticket in received] == [("page", "TIMEOUT")]


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_of_a_kind_that_only_a_newer_version_knows_is_notified_all_the_same(
    hold: Holdfast,
) -> None:
    received: list[Ticket] = []
    hold.on_ticket(received.append)
    await hold.runtime.store.tickets.raise_alarm("lunar", {"title": "the moon is full", "level": "page"})
    await notify_tickets(hold)

    assert [(ticket.title, ticket.level) for ticket in received] == [("the moon is full", "page")]


def test_only_a_function_can_be_given_tickets() -> None:
    with pytest.raises(
        ConfigError, match=r"on_ticket\('ann'\) is not a function; give one that takes a Ticket"
    ):
        Holdfast("sqlite:///none.db").on_ticket("ann")  # type: ignore[type-var]  # that is the point
