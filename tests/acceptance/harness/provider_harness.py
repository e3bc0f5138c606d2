"""The processes of a run with failing providers: workers and the outside service, and what they and the database record."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.providers.provider_state import ProviderState
from tests.acceptance.harness.callers import Callers, build
from tests.acceptance.harness.polling import throttled, until
from tests.acceptance.harness.processes import HARNESS, Process, Service, WorkerHost, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from holdfast import Event
    from holdfast.operations import ProviderStatus
    from holdfast_simulator import Entry
    from tests.acceptance.harness.databases import Database
    from tests.invariants import World

SLOTS = 8


class ProviderEvent(NamedTuple):
    """An entry in a provider's history."""

    at: datetime
    kind: str
    meta: dict[str, Any]


@dataclass
class CallerPool(WorkerPool):
    """Workers that run the callers of one *queue*, each started with the `holdfast worker` command."""

    queue: str = "default"
    slots: int = SLOTS
    environment: Mapping[str, str] = field(default_factory=dict)

    def _worker(self, host: WorkerHost) -> Process:
        return Process.launch(
            *("holdfast", "worker", f"{HARNESS}.callers_app:hold", "--queue", self.queue),
            *("--slots", str(self.slots), "--lease", "2s", "--log-format", "json"),
            log=self.folder / f"worker-{self.queue}-{len(self.former)}-{os.urandom(3).hex()}.log",
            environment={
                "DATABASE_URL": host.url,
                "SERVICE_URL": self.service_url,
                "HOLDFAST_WORKER_POLL_SEC": "0.2",
                **self.environment,
            },
        )


@dataclass(frozen=True)
class ProviderHarness:
    """Controls a run: it submits, injects faults into providers and ends them, and reads the results."""

    database: Database
    service: Service
    pool: CallerPool
    callers: Callers

    def submit(self, provider: str, count: int) -> list[str]:
        """Submit *count* jobs that call *provider*; return their ids."""
        job = self.callers.jobs[provider]
        return [handle.id for handle in job.submit_many_sync((number,) for number in range(count))]

    def calls(self, provider: str) -> list[Entry]:
        """Read the calls to *provider* from the service's log, in the order of arrival."""
        logged = [entry for entry in self.service.calls() if entry.route == f"POST /effects/{provider}"]
        return sorted(logged, key=lambda entry: entry.monotonic)

    def inject(self, provider: str, fault: Any) -> None:
        """Inject *fault* into every call to *provider*."""
        self.service.inject(fault, f"/effects/{provider}")

    def heal(self, provider: str) -> None:
        """Stop injecting faults into calls to *provider*."""
        self.service.heal(f"/effects/{provider}")

    def status(self, provider: str) -> ProviderStatus:
        """Read the status of a provider."""
        return self.callers.hold.providers.show_sync(provider)

    def provider_events(self, provider: str) -> list[ProviderEvent]:
        """Read a provider's history, the oldest event first."""
        events = self.callers.hold.providers.events_sync(provider, limit=1_000)
        return [ProviderEvent(event.at, event.kind, event.meta) for event in reversed(events)]

    def state(self, provider: str) -> ProviderState:
        """Read what all workers share of a provider."""

        async def read() -> ProviderState:
            async with build(self.database.url).hold as hold:
                _, rows = await hold.runtime.store.providers.read([provider])
                return ProviderState.load(rows[provider].state)

        return asyncio.run(read())

    def history(self, job_id: str) -> list[Event]:
        """Read a job's history, the oldest event first."""
        return self.callers.hold.events_sync(job_id)

    def world(self) -> World:
        """Read all rows."""
        return self.database.world()

    def wait(self, condition: Callable[[], bool], what: str, *, within: float = 60.0) -> None:
        """Wait for *condition*, which may query the database."""
        until(throttled(condition), within=within, what=what)

    def wait_for_state(self, provider: str, state: str) -> None:
        """Wait until *provider* is in that state."""
        self.wait(lambda: self.status(provider).state == state, f"{provider} to be {state}")

    def wait_for_the_end(self, jobs: list[str], *, within: float = 60.0) -> None:
        """Wait until all of these have ended."""
        pending = set(jobs)
        self.wait(
            lambda: not pending & self.database.live().keys(), f"{len(jobs)} jobs to end", within=within
        )


@contextmanager
def provider_harness(
    database: Database,
    folder: Path,
    *,
    workers: int = 2,
    slots: int = SLOTS,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ProviderHarness]:
    """Start the service and the workers, and wait until they work."""
    callers = build(database.url)
    with (
        Service(folder) as service,
        CallerPool(
            database.url, folder, service.url, workers, slots=slots, environment=environment or {}
        ) as pool,
    ):
        try:
            pool.wait_until_at_work()
            yield ProviderHarness(database, service, pool, callers)
        finally:
            callers.hold.close_sync()
