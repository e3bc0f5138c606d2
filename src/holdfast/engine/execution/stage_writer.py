"""Writes the stages and waits of one attempt, fenced by the lease."""

from holdfast.core.jobs.stages import StageKey, StageRow, StageStatus
from holdfast.core.jobs.transitions import StageWrite
from holdfast.engine.execution.execution_state import ExecutionState
from holdfast.engine.execution.interrupts import LeaseLost
from holdfast.engine.worker.settler import Settler
from holdfast.ports.store import Settled


class StageWriter:
    """Stores the stages of a job: that they have started, with their count of attempts, and how they ended.

    A stage that runs alone needs no row when it starts: it uses the attempt count of the job.
    """

    def __init__(self, state: ExecutionState, settler: Settler, *, may_be_late: bool) -> None:
        self._state = state
        self._settler = settler
        self._may_be_late = may_be_late
        self._alone: StageWrite | None = None
        """The row of a stage that runs alone. It is written if another stage starts beside it."""
        self._started: dict[StageKey, StageWrite] = {}
        """The stages whose start was written, and that have neither ended nor failed."""

    def start_alone(self, change: StageWrite) -> None:
        """Start a stage without a row, as long as it runs alone."""
        self._alone = change

    async def start(self, change: StageWrite) -> None:
        """Store the start of a stage that does not run alone."""
        self._started[change.key] = change
        await self.write(change)

    async def store_lone(self) -> None:
        """Write the row of a stage that runs alone, before another write resets the job's count, which it uses."""
        alone, self._alone = self._alone, None
        if alone is not None:
            await self.start(alone)

    def leave(self, key: StageKey) -> None:
        """Forget a stage that ran alone and runs no longer."""
        if self._alone is not None and self._alone.key == key:
            self._alone = None

    def spend_attempt(self, key: StageKey) -> None:
        """Count the attempt at a stage that has failed: it is not given back at the end."""
        self._started.pop(key, None)

    async def store(self, change: StageWrite) -> StageRow:
        """Store how a stage or a wait stands, and remember it. Raises `LeaseLost`."""
        await self.write(change)
        self._started.pop(change.key, None)
        # Ages are counted up to the claim, and this was stored after it.
        age = -self._state.elapsed()
        row = StageRow(
            change.id,
            change.key,
            change.status,
            change.attempt,
            change.fingerprint,
            change.result,
            change.failure,
            age,
            change.brief_fingerprint,
        )
        self._state.remember(row)
        return row

    async def write(self, change: StageWrite) -> None:
        """Store the state of a stage. Raises `LeaseLost`."""
        written = await self._settler.store_stage(change, self._state.claim, trace=self._state.trace)
        if written is Settled.OVER and self._may_be_late:
            return  # the deadline has passed: stages run on without being stored, for the late result of the job
        if written is not Settled.WRITTEN:
            raise LeaseLost
        if change.status is not StageStatus.STARTED:
            # The store has reset the job's attempt count in the same write: the next stage starts at one.
            self._state.restart_count()

    async def close(self) -> None:
        """Give back the attempts of stages that were stopped, at the end of the attempt or by their task group."""
        for change in list(self._started.values()):
            await self._settler.store_stage(change._replace(attempt=change.attempt - 1), self._state.claim)
