"""Who takes part when providers fail: worker processes, the outside service, and what both and the database tell."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.providers.provider import ProviderState
from tests.acceptance.harness.callers import Callers, build
from tests.acceptance.harness.pacing import now_and_then, until
from tests.acceptance.harness.processes import HARNESS, Crew, Place, Process, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from holdfast import Event, ProviderStatus
    from holdfast_simulator import Entry
    from tests.acceptance.harness.databases import Database
    from tests.invariants import World

SLOTS = 8


class Happening(NamedTuple):
    """An entry in a provider's history."""

    at: datetime
    kind: str
    meta: dict[str, Any]


@dataclass
class CallingCrew(Crew):
    """Workers that run the callers of one *queue*, each started with the command that every user has."""

    queue: str = "default"
    slots: int = SLOTS
    environment: Mapping[str, str] = field(default_factory=dict)

    def _worker(self, place: Place) -> Process:
        return Process.launch(
            *("holdfast", "worker", f"{HARNESS}.callers_at_work:hold", "--queue", self.queue),
            *("--slots", str(self.slots), "--lease", "2s", "--log-format", "json"),
            log=self.folder / f"worker-{self.queue}-{len(self.former)}-{os.urandom(3).hex()}.log",
            environment={
                "DATABASE_URL": place.url,
                "SERVICE_URL": self.service_url,
                "HOLDFAST_WORKER_POLL_SEC": "0.2",
                **self.environment,
            },
        )


@dataclass(frozen=True)
class Switchboard:
    """The one place from which a run is led: it submits, breaks and heals providers, and looks what came of it."""

    database: Database
    service: Service
    crew: CallingCrew
    callers: Callers

    def submit(self, provider: str, count: int) -> list[str]:
        """Submit jobs that call *provider*, and give their ids."""
        job = self.callers.jobs[provider]
        return [handle.id for handle in job.submit_many_sync((number,) for number in range(count))]

    def calls(self, provider: str) -> list[Entry]:
        """Read who called *provider*, by the service's log, in the order of arrival."""
        logged = [entry for entry in self.service.calls() if entry.route == f"POST /effects/{provider}"]
        return sorted(logged, key=lambda entry: entry.monotonic)

    def strike(self, provider: str, fault: Any) -> None:
        """Let every call to *provider* meet *fault*."""
        self.service.strike(fault, f"/effects/{provider}")

    def heal(self, provider: str) -> None:
        """Let *provider* answer as it should."""
        self.service.heal(f"/effects/{provider}")

    def status(self, provider: str) -> ProviderStatus:
        """Tell how a provider stands."""
        return self.callers.hold.providers.show_sync(provider)

    def happenings(self, provider: str) -> list[Happening]:
        """Read what happened to a provider, the oldest first."""
        told = self.callers.hold.providers.events_sync(provider, limit=1_000)
        return [Happening(event.at, event.kind, event.meta) for event in reversed(told)]

    def state(self, provider: str) -> ProviderState:
        """Read what all workers share of a provider."""

        async def read() -> ProviderState:
            async with build(self.database.url).hold as hold:
                _, rows = await hold.runtime.store.providers.read([provider])
                return ProviderState.load(rows[provider].state)

        return asyncio.run(read())

    def history(self, job_id: str) -> list[Event]:
        """Read what happened to a job, the oldest first."""
        return self.callers.hold.events_sync(job_id)

    def world(self) -> World:
        """Read all rows."""
        return self.database.world()

    def wait(self, condition: Callable[[], bool], what: str, *, within: float = 60.0) -> None:
        """Wait for *condition*, which may ask the database."""
        until(now_and_then(condition), within=within, what=what)

    def wait_for_state(self, provider: str, state: str) -> None:
        """Wait until *provider* is in that state."""
        self.wait(lambda: self.status(provider).state == state, f"{provider} to be {state}")

    def wait_for_the_end(self, jobs: list[str], *, within: float = 60.0) -> None:
        """Wait until all of these have ended."""
        wanted = set(jobs)
        self.wait(lambda: not wanted & self.database.live().keys(), f"{len(jobs)} jobs to end", within=within)


@contextmanager
def switchboard(
    database: Database,
    folder: Path,
    *,
    workers: int = 2,
    slots: int = SLOTS,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Switchboard]:
    """Start the service and the workers, and wait until they work."""
    callers = build(database.url)
    with (
        Service(folder) as service,
        CallingCrew(
            database.url, folder, service.url, workers, slots=slots, environment=environment or {}
        ) as crew,
    ):
        try:
            crew.wait_until_at_work()
            yield Switchboard(database, service, crew, callers)
        finally:
            callers.hold.close_sync()
