"""Tables on a terminal: whatever its width, an id can be copied and a heading can be read."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.cli.commands import queues, schedules
from holdfast.cli.views import providers as view
from holdfast.cli.views.jobs import HISTORY, show, show_list
from holdfast.cli.views.table import moment, show_table
from holdfast.core.jobs.job import Event, EventKind, Job
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import FOR_EVER
from holdfast.engine.operations.job_service import JobDetails, JobListing
from holdfast.operations import ProviderStatus
from holdfast.wiring.system import SystemIds
from tests.builders import a_failure

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 3, 2, 9, 32, 27, tzinfo=UTC)
WIDTHS = [80, 100, 160]
SIGNAL = "waits for the signal 'approved'"
IDS = SystemIds()

PLAIN = Job(
    id="",
    name="translation",
    queue="default",
    owner="",
    status=Status.QUEUED,
    priority=0,
    attempt=0,
    generation=1,
    lease_token=0,
    losses=0,
    created_at=NOW - timedelta(minutes=7),
    queued_at=NOW,
    updated_at=NOW,
)


class Terminal(io.StringIO):
    """Takes what a person would see."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Show something on a terminal of some width, and give its lines without their colours."""

    def shown(show: Callable[[], None], *, width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        with redirect_stdout(Terminal()) as terminal:
            show()
        return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()

    return shown


def listed(reason: str | None = None, *, waits: timedelta | None = None, **fields: Any) -> JobListing:
    retry_after = None if waits is None else NOW + waits
    job = replace(PLAIN, id=IDS.job_id(), retry_after=retry_after)
    return JobListing(replace(job, **fields), reason)


def everything() -> list[JobListing]:
    """Jobs that have something to say in every column."""
    common: dict[str, Any] = {
        "queue": "reports",
        "owner": "ada@example.org",
        "deadline_at": NOW + timedelta(seconds=250),
    }
    return [
        listed(SIGNAL, waits=timedelta(days=3), waiting=True, **common),
        listed("RATE_LIMITED", waits=timedelta(seconds=42), last_attempt=3, **common),
        listed(status=Status.PROCESSING, name="weekly-report-for-all-teachers", **common),
        listed(status=Status.FAILED, failure=a_failure(), **common),
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("with_deadline", [False, True], ids=["", "deadline"])
def test_ids_states_and_headings_are_whole(
    on_a_terminal: Callable[..., list[str]], width: int, with_deadline: bool
) -> None:
    found = everything()

    lines = on_a_terminal(lambda: show_list(found, NOW, with_deadline=with_deadline), width=width)

    heading, rule, *rows = lines
    whole = {"id", "status", "name", "queue", "owner", "attempt", "created", "why"}
    whole |= {"deadline"} if with_deadline else set()
    assert set(heading.split()) | left_out(lines) == whole
    assert {"id", "status", "name", "why"} <= set(heading.split())
    assert set(rule) == {"─"}
    assert all(len(line) <= width for line in lines)
    begun = [row.split()[:2] for row in rows if not row.startswith((" ", "columns omitted"))]
    assert begun == [[job.id, job.status] for job, _, _ in found]


def left_out(lines: list[str]) -> set[str]:
    """The columns that there was no room for, as the last line names them."""
    _, said, names = lines[-1].partition("columns omitted: ")
    return set(names.split(", ")) if said else set()


@pytest.mark.parametrize(
    ("width", "missing"),
    [(80, {"queue", "owner", "attempt", "created"}), (100, {"owner", "attempt", "queue"}), (160, set())],
)
def test_what_there_is_no_room_for_is_named(
    on_a_terminal: Callable[..., list[str]], width: int, missing: set[str]
) -> None:
    lines = on_a_terminal(lambda: show_list(everything(), NOW, with_deadline=False), width=width)

    assert left_out(lines) == missing


def test_columns_that_say_nothing_are_left_out_in_silence(on_a_terminal: Callable[..., list[str]]) -> None:
    found = [listed(), listed(status=Status.COMPLETED, last_attempt=1)]

    lines = on_a_terminal(lambda: show_list(found, NOW, with_deadline=False), width=80)

    assert lines[0].split() == ["id", "status", "name", "created"]
    assert lines[2].split()[1:] == ["queued", "translation", "7m", "ago"]
    assert len(lines) == 4


def test_a_list_without_jobs_says_so(
    on_a_terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = on_a_terminal(lambda: show_list([], NOW, with_deadline=False), width=160)

    assert lines == []
    assert capsys.readouterr().err == "holdfast: no jobs found\n"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (listed(waits=timedelta(minutes=27)), "waits 27m"),
        (listed("RATE_LIMITED", waits=timedelta(seconds=42)), "waits 42s: RATE_LIMITED"),
        (listed("sleeps for 2:00:00", waits=timedelta(hours=2), waiting=True), "waits 2h"),
        (listed(SIGNAL, waits=FOR_EVER, waiting=True), SIGNAL),
        (listed(SIGNAL, waits=timedelta(days=3), waiting=True), f"{SIGNAL}, 3d at most"),
        (listed(f"{SIGNAL}, and 1 more", waits=FOR_EVER, waiting=True), f"{SIGNAL}, and 1 more"),
        (
            listed("waits for job X, and 2 more", waits=FOR_EVER, waiting=True, pending=3),
            "waits for the end of 3 jobs",
        ),
        (listed("waits for job X", waits=FOR_EVER, waiting=True), "waits for job X"),
        (listed("its breaker is open", waits=FOR_EVER, held_by="llm"), "held by llm: its breaker is open"),
        (listed(waits=FOR_EVER, held_by="llm"), "held by llm"),
        (listed(status=Status.FAILED, failure=a_failure()), "UPSTREAM_5XX"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_a_job_does_not_run_is_said_in_words(
    on_a_terminal: Callable[..., list[str]], found: JobListing, why: str
) -> None:
    lines = on_a_terminal(lambda: show_list([found], NOW, with_deadline=False), width=160)

    assert lines[2].rstrip().endswith(f"ago   {why}")


def test_a_held_job_is_shown_with_who_holds_it_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    job = replace(PLAIN, retry_after=NOW + FOR_EVER, held_by="llm")
    events = [Event(EventKind.HELD, NOW, {"reason": why}) for why in ("it was down", "its breaker is open")]

    show(JobDetails(job, [], events, []))

    fields = dict(line.split("\t", 1) for line in capsys.readouterr().out.splitlines() if "\t" in line)
    assert fields["held_by"] == "llm: its breaker is open"
    assert "retry_after" not in fields


def test_a_deadline_is_the_time_that_is_left_or_has_passed(on_a_terminal: Callable[..., list[str]]) -> None:
    deadlines = [NOW + timedelta(seconds=250), NOW - timedelta(minutes=2)]
    found = [listed(deadline_at=each) for each in deadlines]

    lines = on_a_terminal(lambda: show_list(found, NOW, with_deadline=True), width=80)

    assert lines[0].split()[-1] == "deadline"
    assert [line.rstrip()[-8:] for line in lines[2:]] == ["in 4m10s", "  2m ago"]


def test_the_other_tables_fit_into_eighty_columns(on_a_terminal: Callable[..., list[str]]) -> None:
    fire = "the printer is on fire, and the water is not to be found"
    paused = ("mail", 840, 0, "ada", moment(NOW - timedelta(hours=3), NOW), fire, 12)
    cron = "cron 0 9 * * 1-5 (America/Argentina/Buenos_Aires)"
    recurring = ("weekly-report", "weekly-report", cron, None, moment(NOW + timedelta(days=6), NOW))
    failed = (NOW, "processing", "error_class=NOT_FOUND code=GW_4XX message=no such person retryable=no")
    tables = [(queues.COLUMNS, paused), (schedules.COLUMNS, recurring), (HISTORY, failed)]

    for columns, row in tables:
        lines = on_a_terminal(lambda c=columns, r=row: show_table(c, [r]), width=80)

        assert lines[0].split() == [column.name for column in columns]
        assert all(len(line) <= 80 for line in lines)
        assert lines[2].split()[0] in str(row[0]) or lines[2].startswith("2026-03-02T09:32:27Z")


def test_a_queue_list_without_pauses_and_holds_says_nothing_of_them(
    on_a_terminal: Callable[..., list[str]],
) -> None:
    row = ("default", 12, 50, None, None, None, 0)

    lines = on_a_terminal(lambda: show_table(queues.COLUMNS, [row]), width=80)

    assert [line.split() for line in (lines[0], lines[2])] == [
        ["queue", "queued", "processing"],
        ["default", "12", "50"],
    ]


A_PROVIDER = ProviderStatus(
    name="speech-to-text",
    declared=True,
    state="forced closed",
    held=10_000,
    failure_rate=0.55,
    failed=11,
    calls=20,
    trials=0,
    since=NOW - timedelta(days=3, hours=7),
    until=NOW + timedelta(seconds=250),
    actor="ada@example.org",
    reason="the bill is paid, and they say that it works again",
)


def test_a_provider_list_fits_into_eighty_columns_and_names_what_there_was_no_room_for(
    on_a_terminal: Callable[..., list[str]],
) -> None:
    lines = on_a_terminal(lambda: view.show_list(view.ProviderListing([A_PROVIDER], NOW)), width=80)

    names = {column.name for column in view.COLUMNS}
    assert set(lines[0].split()) | left_out(lines) == names
    assert {"provider", "state", "held", "until", "reason"} <= set(lines[0].split())
    assert all(len(line) <= 80 for line in lines)


def test_of_a_provider_that_waits_for_nothing_but_a_job_trials_begin_now(
    on_a_terminal: Callable[..., list[str]],
) -> None:
    tried = replace(A_PROVIDER, state="half-open", until=NOW, actor=None, reason=None)

    lines = on_a_terminal(lambda: view.show_list(view.ProviderListing([tried], NOW)), width=80)

    assert lines[2].split() == ["speech-to-text", "half-open", "3d7h", "ago", "11/20", "10000", "now"]


def test_a_list_of_providers_that_are_well_is_short(on_a_terminal: Callable[..., list[str]]) -> None:
    well = ProviderStatus("llm", True, "closed", 0, 0.0, 0, 0, 0)

    lines = on_a_terminal(lambda: view.show_list(view.ProviderListing([well], NOW)), width=80)

    assert [line.split() for line in (lines[0], lines[2])] == [
        ["provider", "state", "held"],
        ["llm", "closed", "0"],
    ]
