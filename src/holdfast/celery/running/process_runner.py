"""Runs jobs in one process of a Celery worker: an event loop in a thread, and on it a `FleetRunner`."""

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import replace

from holdfast.app import Holdfast
from holdfast.celery.running.task_threads import TaskThreads
from holdfast.engine.fleets.fleet_runner import FleetRunner, Ran
from holdfast.engine.options import WorkerOptions
from holdfast.wiring.process_identity import fleet_worker_name, is_dead


class ProcessRunner:
    """The runner of one process. It starts its thread at once, and connects to the store there.

    *hold* is used itself, and not a twin with connections of its own: the code of jobs submits and waits through it,
    on the event loop that runs it.
    """

    def __init__(self, hold: Holdfast, options: WorkerOptions) -> None:
        self._hold = hold
        self._options = options
        self._threads = TaskThreads(hold.runtime.executor)
        self._stop = asyncio.Event()
        self._terminated = False
        started: Future[tuple[asyncio.AbstractEventLoop, FleetRunner]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="holdfast-celery", daemon=True
        )
        self._thread.start()
        try:
            self._loop, self._runner = started.result()
        except BaseException:
            # A time limit may have interrupted the wait: what starts later has no owner, and ends.
            started.add_done_callback(self._stop_ownerless)
            raise

    def run(self, job_id: str) -> Ran:
        """Run a dispatched job, its plain functions in this thread, and return what that led to.

        Raises `StoreUnavailable`, and nothing has run then.
        """
        with self._threads.waiting_for(job_id) as thread:
            running = asyncio.run_coroutine_threadsafe(self._runner.run(job_id), self._loop)
            running.add_done_callback(lambda _: thread.wake())
            try:
                thread.serve(running.done, at_soft_limit=lambda: self._reached_time_limit(job_id))
            except SystemExit:
                self._terminated = True
                raise
            return running.result()

    def close(self) -> None:
        """Let what runs end within the grace time, release the rest, and disconnect.

        A terminated process leaves its job leased: the next process finds the lease of a dead one, and the loss counts.
        A release would give the attempt back, and a job that always reaches the hard time limit would run for ever.
        """
        if self._terminated:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _stop_ownerless(self, started: "Future[tuple[asyncio.AbstractEventLoop, FleetRunner]]") -> None:
        if started.exception() is None:
            loop, _ = started.result()
            loop.call_soon_threadsafe(self._stop.set)

    def _reached_time_limit(self, job_id: str) -> None:
        self._loop.call_soon_threadsafe(self._runner.reached_time_limit, job_id)

    async def _serve(self, started: "Future[tuple[asyncio.AbstractEventLoop, FleetRunner]]") -> None:
        try:
            await self._hold.open()
            runtime = replace(self._hold.runtime, executor=self._threads)
            runner = FleetRunner(fleet_worker_name(), runtime, self._options, is_dead=is_dead)
            await runner.start()
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits for the start
            started.set_exception(error)
            return
        started.set_result((asyncio.get_running_loop(), runner))
        try:
            await self._stop.wait()
        finally:
            await runner.shut_down()
            await self._hold.close()
