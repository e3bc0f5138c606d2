"""The checks of the demo: an honest run keeps every promise, and each kind of cheating breaks one."""

from __future__ import annotations

import doctest
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from demo import evidence, orders, screen
from demo.books import Books, EventRow, JobRow, LetterRow, ProviderEventRow, StageRow, StepRow
from demo.checks import exit_code, findings
from demo.evidence import Evidence, Finding, Kill, Outage
from holdfast_simulator import Entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

START = datetime(2030, 1, 1, tzinfo=UTC)


def a_call(
    number: int,
    key: str,
    *,
    at: float,
    status: int | None = 200,
    effect_id: str | None = None,
    duplicate_of: str | None = None,
) -> Entry:
    name = key.split(":")[2]
    return Entry(
        number=number,
        at=START + timedelta(seconds=at),
        monotonic=at,
        route=f"POST /effects/{name}",
        key=key,
        body_hash=None,
        fault=None,
        status=status,
        effect_id=effect_id,
        duplicate_of=duplicate_of,
    )


def a_stage(job_id: str, name: str, *, at: float, attempt: int = 1) -> StageRow:
    return StageRow(job_id, name, "done", attempt, START + timedelta(seconds=at))


def a_step(job_id: str, state: str, *, at: float) -> StepRow:
    return StepRow(job_id, state, START + timedelta(seconds=at))


HELD = ("h1", "h2", "h3", "h4", "h5", "h6", "h7")
"""Jobs that call a provider which is down from second 20 to second 23. `p` prints meanwhile."""


def an_answer(job_id: str, at: float) -> Entry:
    return a_call(0, f"{job_id}:1:advise:#1", at=at, effect_id=f"e-{job_id}")


def calls_in_vain() -> list[Entry]:
    """The call that opens the breaker, and a trial that fails."""
    return [
        a_call(0, f"{job_id}:1:advise:#1", at=at, status=503) for job_id, at in (("h1", 20), ("h2", 22.6))
    ]


def calls_of_the_recovery() -> list[Entry]:
    """Three trials, the first three that are released, and one more."""
    moments = (25.1, 24.8, 24.8, 24.9, 25.2, 25.3, 27.1)
    return [an_answer(job_id, at) for job_id, at in zip(HELD, moments, strict=True)]


def provider_events(**moments: float) -> list[ProviderEventRow]:
    """The history of the provider: what happened, and when."""
    times = {"opened": 20.5, "opened_again": 22.7, "closed": 25} | moments
    return [
        ProviderEventRow("assistant", START + timedelta(seconds=at), kind.partition("_")[0])
        for kind, at in times.items()
    ]


def honest() -> Evidence:
    """Job `a` is asked to wait, then loses its worker after the effect.

    Jobs `b` and `c` fail in `ship`; `c` gets other input, and both are replayed, `b` as the canary. After that a
    provider is down: see above.
    """
    return Evidence(
        submitted={
            "a": ("charge", "notify"),
            "b": ("charge", "ship"),
            "c": ("charge", "ship"),
            "p": ("print",),
        }
        | dict.fromkeys(HELD, ("advise",)),
        keys={"order-1": "a", "order-2": "b"},
        again={"order-1": "a", "order-2": "b"},
        calls_before=7,
        calls=[
            a_call(1, "a:1:charge:#1", at=0, status=429),
            a_call(2, "a:1:charge:#1", at=2.1, effect_id="e1"),
            a_call(3, "b:1:charge:#1", at=3, effect_id="e2"),
            a_call(4, "b:1:ship:#1", at=4, status=400),
            a_call(5, "a:1:charge:#1", at=7, duplicate_of="e1"),
            a_call(6, "a:1:notify:#1", at=8, effect_id="e3"),
            a_call(7, "b:2:ship:#1", at=9, effect_id="e4"),
            a_call(0, "c:1:charge:#1", at=3, effect_id="e6"),
            a_call(0, "c:1:ship:#1", at=4, status=400),
            a_call(0, "c:2:ship:#1", at=10, effect_id="e7"),
            a_call(0, "p:1:print:#1", at=21, effect_id="e-p"),
            *calls_in_vain(),
            *calls_of_the_recovery(),
        ],
        books=Books(
            jobs=[
                JobRow("a", "completed", 1, 1, '["e1", "e3"]'),
                JobRow("b", "completed", 1, 2, '["e2", "e4"]'),
                JobRow("c", "completed", 1, 2, '["e6", "e7"]'),
                *(JobRow(job_id, "completed", 1, 1, f'["e-{job_id}"]') for job_id in ("p", *HELD)),
            ],
            stages=[
                a_stage("a", "charge", at=7.1, attempt=3),
                a_stage("a", "notify", at=8.1),
                a_stage("b", "charge", at=3.1),
                a_stage("b", "ship", at=9.1),
                a_stage("c", "charge", at=3.1),
                a_stage("c", "ship", at=10.1),
                a_stage("p", "print", at=21.1),
                a_stage("h1", "advise", at=28, attempt=2),
                *(a_stage(job_id, "advise", at=28) for job_id in HELD[1:]),
            ],
            events=[
                EventRow("h1", "retry", {"delay_ms": 100}),
                EventRow("a", "retry", {"delay_ms": 2000}),
                EventRow("a", "queued", {"reason": "lease lost", "losses": 1}),
            ],
            provider_events=provider_events(),
            keys={"order-1": "a", "order-2": "b"},
            letters=[LetterRow("b", "closed", 1, False), LetterRow("c", "closed", 1, True)],
            steps=[a_step("b", "verified", at=9.2), a_step("c", "verified", at=10.2)],
            failure_texts=["400 for /ship?api_key=[token:01234567…]"],
        ),
        kills=[Kill(17, frozenset({"a"}))],
        kills_planned=1,
        replayed=frozenset({"b", "c"}),
        corrected=frozenset({"c"}),
        secrets=("sk-1234", "@example.org"),
        logs=["failed"],
        budget=3,
        retry_after=timedelta(seconds=2),
        outage=Outage(
            "assistant",
            timedelta(seconds=2),
            frozenset(HELD),
            frozenset({"p"}),
            START + timedelta(seconds=23),
        ),
    )


def with_call(number: int, key: str, **details: float | str | None) -> Callable[[Evidence], Evidence]:
    """One call more than there should be."""
    return lambda run: replace(run, calls=[*run.calls, a_call(number, key, **details)])  # type: ignore[arg-type]  # as a_call takes them


def without_call(number: int) -> Callable[[Evidence], Evidence]:
    return lambda run: replace(run, calls=[entry for entry in run.calls if entry.number != number])


def with_job(row: JobRow) -> Callable[[Evidence], Evidence]:
    """Another row for that job."""

    def change(run: Evidence) -> Evidence:
        jobs = [row if known.id == row.id else known for known in run.books.jobs]
        return replace(run, books=replace(run.books, jobs=jobs))

    return change


def without_job(job_id: str) -> Callable[[Evidence], Evidence]:
    def change(run: Evidence) -> Evidence:
        jobs = [row for row in run.books.jobs if row.id != job_id]
        return replace(run, books=replace(run.books, jobs=jobs))

    return change


def with_books(**changes: object) -> Callable[[Evidence], Evidence]:
    return lambda run: replace(run, books=replace(run.books, **changes))  # type: ignore[arg-type]  # by name


def with_letters(*rows: LetterRow) -> Callable[[Evidence], Evidence]:
    return with_books(letters=list(rows))


def changed(**changes: object) -> Callable[[Evidence], Evidence]:
    return lambda run: replace(run, **changes)  # type: ignore[arg-type]  # by name


COMPLETES = "Every submitted job completes"
LOST = "No job is lost or made up"
TWICE = "No effect takes place twice"
RESULTS = "Results name what took place"
KILLS = "kill -9 costs time, not jobs"
REPAIRED = "Dead letters come back to work"
CANARY = "A canary goes before the others"
REPLAY = "A replay goes on where it failed"
SECRETS = "Dead letters keep secrets"
STAGES = "A finished stage stays finished"
KEYS = "The same key is the same job"
BUDGET = "A stage has at most 3 attempts"
WAITS = "Retry-After is honoured"
OPEN = "Held jobs spend no attempt"
BESIDE = "Other work goes on meanwhile"
RAMP = "The backlog goes out in a ramp"

BREACHES = {
    "a job that waits for ever": (with_job(JobRow("a", "queued", 1, 1, None)), {COMPLETES, KILLS}),
    "a job that is gone": (without_job("a"), {COMPLETES, LOST, KILLS}),
    "a job that was never submitted": (
        with_books(jobs=[*honest().books.jobs, JobRow("x", "completed", 1, 1, "[]")]),
        {LOST},
    ),
    "an effect that took place twice": (
        with_call(8, "a:1:notify:#1", at=8.05, effect_id="e5", duplicate_of="e3"),
        {TWICE, RESULTS, KEYS},
    ),
    "an effect that took place again in a replay": (
        with_call(7, "b:2:charge:#1", at=9.05, effect_id="e5"),
        {TWICE, RESULTS, REPLAY, STAGES},
    ),
    "a result that nothing stands behind": (without_call(6), {RESULTS}),
    "a result that names another effect": (
        with_job(JobRow("b", "completed", 1, 2, '["e2", "e9"]')),
        {RESULTS},
    ),
    "a held job that was never claimed again": (with_books(events=honest().books.events[:2]), {KILLS}),
    "a worker that was not killed": (changed(kills=[]), {KILLS}),
    "a worker that was killed while it held nothing": (changed(kills=[Kill(17, frozenset())]), {KILLS}),
    "a replayed job that did not complete": (
        with_job(JobRow("b", "failed", 1, 2, None)),
        {COMPLETES, REPAIRED, REPLAY},
    ),
    "nothing to bring back": (
        changed(replayed=frozenset(), corrected=frozenset()),
        {REPAIRED, REPLAY},
    ),
    "an earlier stage that was called again in a replay": (
        with_call(7, "b:2:charge:#1", at=9.05, status=503),
        {REPLAY, STAGES},
    ),
    "a letter that was never repaired": (
        with_letters(LetterRow("b", "new", 1, False), LetterRow("c", "closed", 1, True)),
        {REPAIRED},
    ),
    "a letter that was replayed twice": (
        with_letters(LetterRow("b", "closed", 2, False), LetterRow("c", "closed", 1, True)),
        {REPAIRED},
    ),
    "a letter that was not replayed": (
        with_letters(*honest().books.letters, LetterRow("a", "closed", 1, False)),
        {REPAIRED},
    ),
    "a failed job without a letter": (with_letters(LetterRow("c", "closed", 1, True)), {REPAIRED}),
    "input that was not corrected": (
        with_letters(LetterRow("b", "closed", 1, False), LetterRow("c", "closed", 1, False)),
        {REPAIRED},
    ),
    "a letter that went with the canary": (
        with_books(steps=[a_step("b", "verified", at=10.05)]),
        {CANARY},
    ),
    "a canary that no letter followed": (
        changed(calls=[entry for entry in honest().calls if entry.key != "c:2:ship:#1"]),
        {RESULTS, CANARY},
    ),
    "a canary that was not verified": (with_books(steps=[]), {CANARY}),
    "a key in a dead letter": (with_books(failure_texts=["sk-1234 [token:01234567…]"]), {SECRETS}),
    "an address in a log": (changed(logs=["mailed ada@example.org"]), {SECRETS}),
    "no secret to keep": (changed(secrets=()), {SECRETS}),
    "nothing that was masked": (with_books(failure_texts=["400 for /ship"]), {SECRETS}),
    "a finished stage that was called again": (
        with_call(7, "a:1:notify:#1", at=8.5, duplicate_of="e3"),
        {STAGES},
    ),
    "a stage whose result was not stored": (with_books(stages=honest().books.stages[1:]), {STAGES}),
    "a second submission that made another job": (changed(again={"order-1": "x", "order-2": "b"}), {KEYS}),
    "a second submission that made a job run": (changed(calls_before=6), {KEYS}),
    "nothing submitted again": (changed(again={}), {KEYS}),
    "a stage that was called too often": (changed(budget=2), {BUDGET}),
    "a job that began too often": (with_job(JobRow("a", "completed", 4, 1, '["e1", "e3"]')), {BUDGET}),
    "a retry that came too early": (changed(retry_after=timedelta(seconds=2.2)), {WAITS}),
    "no job asked to wait": (without_call(1), {WAITS}),
    "a trial that cost an attempt": (
        with_books(events=[*honest().books.events, EventRow("h2", "retry", {})]),
        {OPEN},
    ),
    "a stage with more attempts than retries": (
        with_books(stages=[*honest().books.stages[:-1], a_stage("h7", "advise", at=28, attempt=2)]),
        {OPEN},
    ),
    "a breaker that never opened": (with_books(provider_events=provider_events()[2:]), {OPEN, BESIDE}),
    "other work that had to wait for the provider": (
        changed(outage=honest().outage._replace(healed_at=START + timedelta(seconds=21))),  # type: ignore[union-attr]  # it is there
        {BESIDE},
    ),
    "a stampede": (with_books(provider_events=provider_events(closed=24.7)), {RAMP}),
    "a breaker that opened again": (
        with_books(provider_events=[*provider_events(), *provider_events(opened=26)[:1]]),
        {RAMP},
    ),
    "a provider that stayed well": (changed(outage=None), {OPEN, BESIDE, RAMP}),
}


def test_an_honest_run_keeps_every_promise() -> None:
    found = findings(honest())

    assert [finding.promise for finding in found if not finding.holds] == []
    assert exit_code(found) == 0


@pytest.mark.parametrize(("cheat", "broken"), BREACHES.values(), ids=BREACHES.keys())
def test_a_broken_promise_is_found_and_gives_exit_code_1(
    cheat: Callable[[Evidence], Evidence], broken: set[str]
) -> None:
    found = findings(cheat(honest()))

    assert {_generic(finding.promise) for finding in found if not finding.holds} == broken
    assert exit_code(found) == 1


def test_a_run_in_which_nothing_happened_shows_nothing() -> None:
    nothing = Evidence(
        submitted={},
        keys={},
        again={},
        calls_before=0,
        calls=[],
        books=Books([], [], [], [], {}),
        kills=[],
        kills_planned=0,
        replayed=frozenset(),
        budget=3,
        retry_after=timedelta(seconds=2),
    )

    assert exit_code(findings(nothing)) == 1


def test_a_broken_promise_is_marked_and_its_culprit_named() -> None:
    written = io.StringIO()
    display = screen.Screen(Console(file=written, width=80))

    display.verdict(
        [Finding("All is well", "wrong 0", True), Finding("No cheating", "cheats 1", False, ("job a",))]
    )

    assert [line.split()[-1] for line in written.getvalue().splitlines() if "  All is" in line] == ["kept"]
    assert [line.split()[-1] for line in written.getvalue().splitlines() if "cheats" in line] == ["BROKEN"]
    assert "No cheating: job a" in written.getvalue()


@pytest.mark.parametrize("module", [evidence, orders, screen], ids=lambda module: module.__name__)
def test_the_examples_run(module: ModuleType) -> None:
    outcome = doctest.testmod(module)

    assert (outcome.failed, outcome.attempted > 0) == (0, True)


def _generic(promise: str) -> str:
    return BUDGET if promise.startswith("A stage has at most") else promise
