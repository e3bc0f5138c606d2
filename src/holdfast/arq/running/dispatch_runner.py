"""Runs dispatched jobs inside an arq worker: the engine runs them in tasks of its own, arq only waits for their ends."""

import asyncio
from datetime import timedelta
from typing import Any

from holdfast.app import Holdfast
from holdfast.arq.running.in_progress import InProgress
from holdfast.arq.worker_context import set_worker_context
from holdfast.core.errors import StoreUnavailable
from holdfast.engine.fleets.fleet_runner import FleetRunner, RunOutcome
from holdfast.engine.options import WorkerOptions
from holdfast.wiring.process_identity import fleet_worker_name, is_dead

RETRY_AFTER = 1.0
"""Seconds until a dispatch is tried again while the store is unavailable."""


class DispatchRunner:
    """Runs the dispatches of one arq worker, from the worker's start to its end."""

    def __init__(self, hold: Holdfast, queue: str, *, slots: int) -> None:
        self._hold = hold
        self._queue = queue
        self._slots = slots
        self._runner: FleetRunner | None = None
        self._in_progress: InProgress | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self, ctx: dict[Any, Any]) -> None:
        """Connect, and be ready for dispatches. Raises what a worker of Holdfast's own raises at its start."""
        hold = self._hold
        hold.settings.ensure_usable()
        await hold.open()
        set_worker_context(hold, ctx)
        name = fleet_worker_name()
        self._stopping = None
        self._runner = FleetRunner(name, hold.runtime, self._options(), is_dead=is_dead)
        await self._runner.start()
        self._in_progress = InProgress(hold.runtime, ctx["redis"], self._queue, worker=name, is_dead=is_dead)
        self._in_progress.start()

    def _options(self) -> WorkerOptions:
        # arq has waited already: its `job_completion_wait` is the grace time.
        options = self._hold.settings.worker_options
        return WorkerOptions(
            slots=self._slots,
            queues=(self._queue,),
            lease=options.lease,
            grace=timedelta(0),
            poll=options.poll,
        )

    async def run(self, ctx: dict[Any, Any], job_id: str) -> str:
        """Run a dispatched job, and return what that led to, which arq logs.

        Cancelled, it releases the job with its attempt: only the end of the worker cancels it.
        """
        runner, in_progress, arq_id = self._runner, self._in_progress, str(ctx["job_id"])
        if runner is None or in_progress is None:
            raise RuntimeError(
                "the worker has not started; on_startup of holdfast.arq.Settings was not called"
            )
        # The job runs whether or not its mark is written: the lease in the database is what excludes a second run.
        in_progress.begin(arq_id)
        running = asyncio.create_task(self._run_job(runner, job_id), name=f"holdfast dispatch {job_id}")
        try:
            return str(await asyncio.shield(running))
        except asyncio.CancelledError:
            await self._release_all(runner)
            await asyncio.wait([running])
            await in_progress.withdraw(arq_id)
            raise
        finally:
            in_progress.end(arq_id)

    async def _run_job(self, runner: FleetRunner, job_id: str) -> RunOutcome:
        """Run the job; one that cannot be claimed now, because the store is unavailable, is dispatched again."""
        try:
            return (await runner.run(job_id)).outcome
        except StoreUnavailable as error:
            self._hold.runtime.logger.warning(
                "dispatch not claimed", job_id=job_id, message=self._hold.runtime.describe(error)
            )
            await asyncio.sleep(RETRY_AFTER)  # it keeps its slot: the next dispatch would meet the same
            return RunOutcome.LOST

    async def _release_all(self, runner: FleetRunner) -> None:
        """Shut the runner down once, whichever of its dispatches is cancelled first."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(runner.shut_down(at_once=True), name="holdfast shut down")
        await asyncio.shield(self._stopping)

    async def stop(self) -> None:
        """Release what still runs, and be no longer ready for dispatches."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await self._release_all(runner)
        in_progress, self._in_progress = self._in_progress, None
        if in_progress is not None:
            await in_progress.stop()

    async def close(self) -> None:
        """Disconnect from the store, after the hooks of the application."""
        await self._hold.close()
