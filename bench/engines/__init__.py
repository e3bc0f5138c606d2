"""One module per engine, each with a class that is an `Engine`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from bench.case import Case, Tally

ENGINES = {
    "holdfast": "Holdfast",
    "pgqueuer": "PgQueuer",
    "procrastinate": "Procrastinate",
    "dbos": "DBOS",
    "dramatiq": "Dramatiq",
    "huey": "Huey",
}

HOMES = {"dramatiq": "rabbitmq", "huey": "sqlite"}
"""Where an engine keeps its jobs, if not in PostgreSQL."""


class Engine(Protocol):
    """What the benchmark asks of an engine. Nothing here is timed but what the measure says."""

    @property
    def working_since(self) -> float | None:
        """When the worker was up and made its first claim; None if only its first handler call shows it.

        A drain is timed from here, so that no engine pays for how it starts.
        """

    async def install(self) -> None:
        """Create the schema, with what the engine's own guide recommends."""

    async def connect(self) -> None:
        """Open the connections that submitting or working will use."""

    async def close(self) -> None: ...

    async def submit(self, number: int) -> None:
        """Submit one no-op job; durable when this returns."""

    async def submit_many(self, kind: str, numbers: Sequence[int]) -> None:
        """Submit jobs of *kind* (`noop` or `staged`) by the fastest documented method."""

    def worker(self) -> AbstractAsyncContextManager[None]:
        """Work in this process, at the case's setting, until left."""

    async def queued(self) -> int:
        """Return how many jobs wait in the database."""

    async def finished(self) -> int:
        """Return how many jobs the database holds as succeeded."""


def engine_for(case: Case, tally: Tally | None = None) -> Engine:
    """Load the engine of *case*; without a tally it can submit, but not work."""
    module = importlib.import_module(f"bench.engines.{case.engine}")
    engine: Engine = module.Bench(case, tally)
    return engine
