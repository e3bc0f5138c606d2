"""What follows when no attempt is left: the level of the ticket, and whether a backup is called before."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from holdfast import AutoReplay, ErrorClass, Holdfast, JobFunction, Permanent, Status, current
from holdfast.errors import ConfigError
from holdfast.operations import Ticket, TicketKind
from tests.contract.conftest import Database, Logger
from tests.contract.letters import ALL, answered, failed, letter_of, notify_tickets, opened
from tests.contract.services import STEADY, Service, declared, down, held, submitted


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger) as made:
        yield made


@pytest.fixture
def received(hold: Holdfast) -> list[Ticket]:
    """The tickets that a hook has received."""
    tickets: list[Ticket] = []
    hold.on_ticket(tickets.append)
    return tickets


def failing(hold: Holdfast, error: BaseException, runs: list[int], **options: Any) -> JobFunction[[], None]:
    """Declare a job with three attempts in one stage, all of which meet *error*."""

    @hold.stage("ask", attempts=3)
    async def ask() -> None:
        runs.append(1)
        raise error

    @hold.job("grade", **options)
    async def grade() -> None:
        await ask()

    return grade


@pytest.mark.clause("RET-7")
@pytest.mark.clause("DLQ-4")
@pytest.mark.parametrize(
    ("error", "known_as", "attempts", "level"),
    [
        (TimeoutError("the model did not answer"), ErrorClass.NETWORK_TIMEOUT, 3, "review"),
        (answered(500), ErrorClass.UPSTREAM_5XX, 3, "review"),
        (ConnectionRefusedError("connection refused"), ErrorClass.CONNECT_FAILED, 3, "alert"),
        (ConnectionResetError("gone"), ErrorClass.CONNECTION_LOST, 3, "alert"),
        (answered(422), ErrorClass.SCHEMA_INVALID, 1, "review"),
        (Permanent("no", error_class=ErrorClass.POLICY_REJECTED), ErrorClass.POLICY_REJECTED, 1, "review"),
        (KeyError("no such thing"), ErrorClass.BUG, 1, "page"),
        (Permanent("no address", error_class=ErrorClass.MISCONFIGURED), ErrorClass.MISCONFIGURED, 1, "page"),
        (answered(401), ErrorClass.AUTH_DENIED, 1, "page"),
    ],
    ids=lambda value: value.value if isinstance(value, ErrorClass) else "",
)
async def test_the_class_of_the_failure_decides_how_many_attempts_there_are_and_the_level_of_the_ticket(
    hold: Holdfast,
    received: list[Ticket],
    *,
    error: BaseException,
    known_as: ErrorClass,
    attempts: int,
    level: str,
) -> None:
    runs: list[int] = []

    job_id = await failed(hold, failing(hold, error, runs))
    await notify_tickets(hold)
    letter = await letter_of(hold, job_id)

    assert (letter.error_class, letter.attempt, len(runs)) == (known_as, attempts, attempts)
    [ticket] = received
    assert (ticket.kind, ticket.level, ticket.job_id) == (TicketKind.DEAD_LETTER, level, job_id)
    assert ticket.facts["error_class"] == known_as


@pytest.mark.clause("RET-7")
@pytest.mark.parametrize(
    ("own", "level"),
    [
        ({"NETWORK_TIMEOUT": "page"}, "page"),
        ({"NETWORK_TIMEOUT": ("review", "alert")}, "alert"),
        ({"NETWORK_TIMEOUT": ()}, "review"),
        ({"BUG": "review"}, "review"),
    ],
    ids=["louder", "the loudest", "none is named", "another class"],
)
async def test_a_job_may_have_a_table_of_its_own(
    hold: Holdfast, received: list[Ticket], *, own: Mapping[str, Any], level: str
) -> None:
    await failed(hold, failing(hold, TimeoutError("slow"), [], on_exhausted=own))
    await notify_tickets(hold)

    assert [ticket.level for ticket in received] == [level]


def speech(hold: Holdfast, asked: list[str | None], **options: Any) -> JobFunction[[], None]:
    """Declare a job whose provider has a backup, and both are down."""
    stt = hold.provider("stt", backup=hold.provider("stt-2"))

    @hold.stage("transcribe", provider=stt, attempts=2)
    async def transcribe() -> None:
        asked.append(current().provider)
        raise down()

    @hold.job("grade", **options)
    async def grade() -> None:
        await transcribe()

    return grade


@pytest.mark.clause("RET-7")
async def test_the_backup_is_asked_in_the_last_attempt_and_if_it_fails_too_there_is_a_letter(
    hold: Holdfast, received: list[Ticket]
) -> None:
    asked: list[str | None] = []

    letter = await letter_of(hold, await failed(hold, speech(hold, asked)))
    await notify_tickets(hold)

    assert asked == ["stt", "stt", "stt-2"]
    assert (letter.stage, letter.failure.context["provider"]) == ("transcribe", "stt-2")
    assert [ticket.level for ticket in received] == ["review"]


@pytest.mark.clause("RET-7")
async def test_a_table_without_the_backup_leaves_it_alone(hold: Holdfast, received: list[Ticket]) -> None:
    asked: list[str | None] = []

    letter = await letter_of(
        hold, await failed(hold, speech(hold, asked, on_exhausted={"UPSTREAM_5XX": "alert"}))
    )
    await notify_tickets(hold)

    assert asked == ["stt", "stt"]
    assert letter.failure.context["provider"] == "stt"
    assert [ticket.level for ticket in received] == ["alert"]


@pytest.mark.clause("RET-7")
@pytest.mark.clause("BRK-2")
async def test_an_open_breaker_spends_no_attempt_and_leaves_no_letter(
    hold: Holdfast, service: Service, received: list[Ticket]
) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=5)
    service.error = down()

    async with hold.worker(slots=1, poll=0.05):
        handles = await submitted(job, 6)
        await held(hold, "llm", 6)
    await notify_tickets(hold)

    assert len(service.calls) == 4
    assert (await hold.dead_letters.list(ALL), received) == ([], [])
    for number, handle in enumerate(handles):
        seen = await handle.read()
        assert (seen.status, seen.attempt) == (Status.QUEUED, service.calls.count(number))


@pytest.mark.clause("RET-7")
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"NETWORK_TIMEOUT": "shout"}, r"\['shout'\] cannot follow NETWORK_TIMEOUT; use 'review', 'backup'"),
        ({"TIMED_OUT": "page"}, "'TIMED_OUT' is not an error class; the classes are CONNECT_FAILED, "),
        ({"BUG": ["page", 3]}, r"\['page', 3\] cannot follow BUG"),
        ({"BUG": 5}, "on_exhausted={'BUG': 5} is invalid"),
        ("page", "on_exhausted='page' is invalid"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_when_the_job_is_declared(table: Any, message: str) -> None:
    hold = Holdfast("sqlite:///none.db")

    with pytest.raises(ConfigError, match=message):

        @hold.job("grade", on_exhausted=table)
        async def grade() -> None: ...


def test_an_auto_replay_that_makes_no_sense_is_refused_when_the_job_is_declared() -> None:
    hold = Holdfast("sqlite:///none.db")

    with pytest.raises(ConfigError, match=r"auto_replay=True must be an AutoReplay: AutoReplay\(safe=…\)"):

        @hold.job("grade", auto_replay=True)  # type: ignore[call-overload, untyped-decorator]  # that is the point
        async def grade() -> None: ...

    with pytest.raises(ValueError, match="safe is empty; say why"):
        AutoReplay(safe=" ")
