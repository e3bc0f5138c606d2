"""Providers that fail, called by several worker processes: one run on each store, and the claims about it.

The run injects a different fault into each provider while all the others go on, ends the faults, and kills
all workers at the end. Each test is one claim about it, judged by the service's own log of calls and by the
database. `make outage` and `make rates` are the long runs, with measurements.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from holdfast import Status as JobStatus
from holdfast_simulator import DOWN, Hang, RateLimit, Status
from tests import invariants
from tests.acceptance.harness.callers import AT_A_TIME, CALL_SECONDS, LONELY, METERED
from tests.acceptance.harness.polling import until
from tests.acceptance.harness.provider_harness import SLOTS, CallerPool, ProviderHarness, provider_harness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Event
    from holdfast_simulator import Entry
    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.provider_harness import ProviderEvent
    from tests.invariants import World

COOLDOWN = timedelta(seconds=1)
BETWEEN = COOLDOWN / 2
"""By then all calls that were permitted before an opening have ended, and no trial has begun yet."""

PAUSE = timedelta(seconds=2)
WINDOW = 20
WORKERS = 2
TRIALS = 3


@dataclass
class Run:
    """What was done, and what the log and the database recorded."""

    jobs: dict[str, list[str]] = field(default_factory=dict)
    calls: dict[str, list[Entry]] = field(default_factory=dict)
    provider_events: dict[str, list[ProviderEvent]] = field(default_factory=dict)
    releases: list[tuple[datetime, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    mail_done_at: datetime | None = None
    calls_when_opened: dict[str, int] = field(default_factory=dict)
    open_until: dict[str, datetime] = field(default_factory=dict)
    trial_expires: datetime | None = None
    calls_after_restart: int = 0
    events_after_restart: list[Event] = field(default_factory=list)
    one_by_the_backup: list[Event] = field(default_factory=list)
    world: World | None = None

    def events(self, provider: str, kind: str) -> list[dict[str, object]]:
        """The entries of one kind in the histories of a provider's jobs."""
        assert self.world is not None
        mine = set(self.jobs[provider])
        return [row for row in self.world.events if row["id"] in mine and row["kind"] == kind]

    def first(self, provider: str, kind: str) -> ProviderEvent:
        """The first time that something happened to a provider."""
        return next(event for event in self.provider_events[provider] if event.kind == kind)

    def with_status(self, provider: str, status: JobStatus) -> set[str]:
        """Those of a provider's jobs that are in one state."""
        assert self.world is not None
        return self.world.with_status(status) & set(self.jobs[provider])


@pytest.fixture(scope="module")
def run(lasting_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run all faults once."""
    folder = tmp_path_factory.mktemp("outage")
    environment = {"CIRCUIT_COOLDOWN_MS": str(round(COOLDOWN.total_seconds() * 1000))}
    with provider_harness(lasting_database, folder, workers=WORKERS, environment=environment) as harness:
        return _Scenario(harness).run()


class _Scenario:
    """The phases of the run."""

    def __init__(self, harness: ProviderHarness) -> None:
        self._harness = harness
        self._run = Run()

    def run(self) -> Run:
        with self._a_lonely_worker() as lonely:
            self._calm()
            self._refusals()
            self._outage()
            self._death_of_a_trial(lonely)
            self._recovery()
        self._restart()
        self._look(lonely)
        return self._run

    @contextmanager
    def _a_lonely_worker(self) -> Iterator[CallerPool]:
        pool = self._harness.pool
        with CallerPool(
            pool.url, pool.folder, pool.service_url, 1, queue=LONELY, environment=pool.environment
        ) as lonely:
            yield lonely

    def _submit(self, provider: str, count: int) -> list[str]:
        jobs = self._harness.submit(provider, count)
        self._run.jobs[provider] = self._run.jobs.get(provider, []) + jobs
        return jobs

    def _calm(self) -> None:
        """Fill the window with calls that went well."""
        self._submit("llm", WINDOW)
        self._harness.wait(lambda: self._harness.status("llm").calls == WINDOW, "a window full of calls")

    def _refusals(self) -> None:
        """Let one job each meet a 429, and then send the others after it."""
        self._harness.inject("busy", RateLimit(wait=PAUSE))
        self._harness.inject("spent", RateLimit(code="insufficient_quota"))
        for provider, state in (("busy", "limited"), ("spent", "blocked")):
            self._submit(provider, 1)
            self._harness.wait_for_state(provider, state)
            self._run.calls_when_opened[provider] = len(self._harness.calls(provider))
            self._run.open_until[provider] = self._open_until(provider)
            self._harness.heal(provider)
        self._submit("busy", 20)
        self._submit("spent", 4)

    def _open_until(self, provider: str) -> datetime:
        period = self._harness.state(provider).breaker.open_period
        assert period is not None
        return datetime.fromtimestamp(period.until, UTC)

    def _outage(self) -> None:
        """Inject faults into some providers, and check that the others go on."""
        for provider, fault in (("llm", DOWN), ("speech", DOWN), ("kept", DOWN), ("denied", Status(401))):
            self._harness.inject(provider, fault)
        for provider, count in (("llm", 60), ("speech", 30), ("kept", 1), ("denied", 200)):
            self._submit(provider, count)
        for provider, count in (("narrow", 40), ("metered", 60)):
            self._submit(provider, count)
        self._harness.wait(lambda: self._openings("llm") >= 1, "the breaker to open")
        self._harness.wait_for_the_end(self._submit("mail", 60))
        self._run.mail_done_at = datetime.now(UTC)
        self._harness.wait(lambda: self._openings("llm") >= 3, "two trials to fail")

    def _openings(self, provider: str) -> int:
        return sum(event.kind == "opened" for event in self._harness.provider_events(provider))

    def _death_of_a_trial(self, lonely: CallerPool) -> None:
        """Kill a worker whose trial call has no answer yet."""
        self._harness.inject("kept", Hang())
        until(lambda: self._hangs("kept"), within=30, what="a trial to hang")
        [trial] = self._harness.state("kept").breaker.trials
        self._run.trial_expires = datetime.fromtimestamp(trial.expires, UTC)
        lonely.members[0].kill()
        self._harness.heal("kept")
        lonely.replace_dead()

    def _hangs(self, provider: str) -> bool:
        return any(entry.fault == "hang" for entry in self._harness.calls(provider))

    def _recovery(self) -> None:
        self._harness.heal("llm")
        for provider in ("llm", "busy", "speech", "narrow", "metered", "kept"):
            self._harness.wait_for_the_end(self._run.jobs[provider])

    def _restart(self) -> None:
        """Kill all workers, and read what their successors know."""
        pool = self._harness.pool
        for member in pool.members:
            member.kill()
        pool.replace_dead()
        [late] = self._submit("spent", 1)
        self._harness.wait(lambda: "held" in self._kinds(late), "the new workers to hold a job")
        self._run.calls_after_restart = len(self._harness.calls("spent"))
        self._run.events_after_restart = self._harness.history(late)
        self._harness.callers.hold.providers.probe_sync("spent", actor="ops", reason="the bill is paid")
        self._harness.wait_for_the_end(self._run.jobs["spent"])

    def _kinds(self, job_id: str) -> list[str]:
        return [event.kind.value for event in self._harness.history(job_id)]

    def _look(self, lonely: CallerPool) -> None:
        """Read what is left to judge by."""
        harness, run = self._harness, self._run
        providers = list(harness.callers.jobs)
        run.world = harness.world()
        run.calls = {provider: harness.calls(provider) for provider in providers}
        run.provider_events = {provider: harness.provider_events(provider) for provider in providers}
        run.releases = sorted(
            (datetime.fromisoformat(line["timestamp"]), line["jobs"])
            for pool in (harness.pool, lonely)  # any free worker releases, for all queues
            for line in pool.lines("held jobs released")
            if line["provider"] == "llm"
        )
        run.errors = [
            line["provider"] for line in harness.pool.lines("provider opened") if line["level"] == "error"
        ]
        run.one_by_the_backup = harness.history(run.jobs["speech"][-1])


@pytest.mark.clause("BRK-4")
def test_a_breaker_opens_for_all_workers_as_soon_as_one_report_is_in(run: Run) -> None:
    opened = run.first("llm", "opened")
    before = [call for call in run.calls["llm"] if call.fault and call.at < opened.at + BETWEEN]

    # A call is longer than a report, so each slot begins one at most within it.
    in_flight = within_one_report = WORKERS * SLOTS
    assert (opened.meta["failed"], opened.meta["calls"]) == (11, WINDOW)
    assert 11 <= len(before) <= 11 + in_flight + within_one_report


@pytest.mark.clause("BRK-2")
@pytest.mark.clause("BRK-3")
def test_an_open_breaker_lets_one_to_three_trials_through_after_each_cooldown(run: Run) -> None:
    opened = [event.at for event in run.provider_events["llm"] if event.kind == "opened"]
    failed = [call.at for call in run.calls["llm"] if call.fault]

    tried = [sum(one + BETWEEN <= at < next_ + BETWEEN for at in failed) for one, next_ in pairwise(opened)]

    assert len(tried) >= 2
    assert all(1 <= trials <= TRIALS for trials in tried), tried


@pytest.mark.clause("BRK-3")
def test_as_many_trials_have_to_succeed_as_were_asked_for(run: Run) -> None:
    closed = run.first("llm", "closed")

    trials = [event for event in run.provider_events["llm"] if event.kind == "tried"]

    assert [event.meta["outcome"] for event in trials[-TRIALS:]] == ["success"] * TRIALS
    assert trials[-1].at <= closed.at


@pytest.mark.clause("BRK-2")
def test_no_attempt_is_spent_while_a_breaker_is_open(run: Run) -> None:
    assert run.world is not None
    opened = run.first("llm", "opened")
    failures = [call for call in run.calls["llm"] if call.fault and call.at < opened.at + BETWEEN]
    retries = Counter(event["id"] for event in run.events("llm", "retry"))

    attempts = {row["id"]: row["attempt"] for row in run.world.stages if row["id"] in set(run.jobs["llm"])}

    assert attempts == {job: 1 + retries[job] for job in run.jobs["llm"]}
    assert retries.total() == len(failures)
    assert run.with_status("llm", JobStatus.COMPLETED) == set(run.jobs["llm"])


@pytest.mark.clause("BRK-2")
def test_jobs_of_another_provider_go_on_behind_those_that_are_held(run: Run) -> None:
    assert run.mail_done_at is not None

    assert run.with_status("mail", JobStatus.COMPLETED) == set(run.jobs["mail"])
    assert run.mail_done_at < run.first("llm", "closed").at


@pytest.mark.clause("BRK-5")
def test_held_jobs_go_out_in_a_ramp_and_nothing_opens_again(run: Run) -> None:
    closed = run.first("llm", "closed")
    since = [call.at - closed.at for call in run.calls["llm"] if call.at >= closed.at]

    gone = [sum(at < timedelta(seconds=2 * step) for at in since) for step in (1, 2, 3)]
    steps = [jobs for at, jobs in run.releases if at >= closed.at]

    assert steps[:3] == [3, 6, 12]
    assert len(since) > 3 + 6 + 12
    assert (gone[0] <= 3, gone[1] <= 3 + 6, gone[2] <= 3 + 6 + 12) == (True, True, True), gone
    assert [e for e in run.provider_events["llm"] if e.kind == "opened" and e.at > closed.at] == []


@pytest.mark.clause("BRK-6")
def test_a_limit_on_calls_at_a_time_holds_over_processes(run: Run) -> None:
    began = [call.monotonic for call in run.calls["narrow"]]

    most = max(sum(at - CALL_SECONDS < other <= at for other in began) for at in began)

    assert len(began) == len(run.jobs["narrow"])
    assert 1 < most <= AT_A_TIME


@pytest.mark.clause("BRK-6")
def test_a_rate_holds_over_processes(run: Run) -> None:
    began = [call.monotonic for call in run.calls["metered"]]

    allowed = (began[-1] - began[0]) * METERED + 1

    assert len(began) == len(run.jobs["metered"])
    assert len(began) < 1.3 * allowed  # each process with a rate of its own would have made twice as many


@pytest.mark.clause("BRK-2")
@pytest.mark.clause("BRK-6")
def test_a_backup_takes_over_and_the_history_names_it(run: Run) -> None:
    [stage] = [event for event in run.one_by_the_backup if event.kind.value == "stage"]

    assert run.with_status("speech", JobStatus.COMPLETED) == set(run.jobs["speech"])
    assert len(run.calls["speech-eu"]) == len(run.jobs["speech"])
    assert stage.meta["provider"] == "speech-eu"


@pytest.mark.clause("BRK-1")
@pytest.mark.clause("RET-4")
def test_a_429_with_a_hint_makes_every_worker_wait_for_as_long(run: Run) -> None:
    opened, closed = run.first("busy", "opened"), run.first("busy", "closed")

    first, *later = [call.at for call in run.calls["busy"]]

    assert (opened.meta["cause"], run.calls_when_opened["busy"]) == ("limited", 1)
    assert opened.meta["seconds"] == PAUSE.total_seconds()
    assert first < opened.at < run.open_until["busy"] <= min(later)
    assert sum(at < closed.at for at in later) == 1
    assert run.with_status("busy", JobStatus.COMPLETED) == set(run.jobs["busy"])


@pytest.mark.clause("BRK-4")
def test_a_spent_quota_blocks_its_provider_after_one_call_and_through_a_restart(run: Run) -> None:
    held = [event.meta["reason"] for event in run.events_after_restart if event.kind.value == "held"]

    assert (run.calls_when_opened["spent"], run.calls_after_restart) == (1, 1)
    assert held == ["spent is blocked"]
    assert len(run.with_status("spent", JobStatus.FAILED)) == 1
    assert len(run.with_status("spent", JobStatus.COMPLETED)) == len(run.jobs["spent"]) - 1


def test_refused_credentials_fail_three_of_hundreds_of_jobs_and_log_one_error(run: Run) -> None:
    failed = run.with_status("denied", JobStatus.FAILED)
    held = [event["id"] for event in run.events("denied", "held")]

    assert (len(run.jobs["denied"]), len(failed), run.errors.count("denied")) == (200, 3, 1)
    assert set(held) == set(run.jobs["denied"]) - failed
    assert run.events("denied", "retry") == []


@pytest.mark.clause("BRK-3")
def test_the_slot_of_a_trial_whose_worker_was_killed_is_free_again_after_its_lease(run: Run) -> None:
    assert run.trial_expires is not None
    [hung] = [call.at for call in run.calls["kept"] if call.fault == "hang"]

    after = [call.at for call in run.calls["kept"] if call.at > hung]

    assert min(after) >= run.trial_expires
    assert run.with_status("kept", JobStatus.COMPLETED) == set(run.jobs["kept"])


def test_the_books_balance_after_all_of_that(run: Run) -> None:
    assert run.world is not None

    invariants.the_books_balance(run.world)
    invariants.no_effect_doubled(call for calls in run.calls.values() for call in calls)
