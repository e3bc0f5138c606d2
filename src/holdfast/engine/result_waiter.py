"""The result waiter: callers outside a job wait for its end, with one poll for all of them."""

import asyncio
from datetime import timedelta

from holdfast.core.errors import ResultTimeout, StoreUnavailable
from holdfast.ports import Hint, HintKind, Random, Store


class ResultWaiter:
    """Wakes the callers that wait for a job: at once by a hint, else by one poll for all of them."""

    def __init__(self, store: Store, random: Random, *, poll: timedelta) -> None:
        self._store = store
        self._random = random
        self._poll = poll
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._poll_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, job_id: str, *, timeout: timedelta | None) -> None:
        """Return once the job has ended. Raises `ResultTimeout`; the job itself goes on."""
        ended = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, []).append(ended)
        self._poll_due.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="holdfast waiter")
            self._task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                await ended
        except TimeoutError:
            raise ResultTimeout(f"job {job_id} has not ended yet; it goes on, so ask again later") from None
        finally:
            self._forget(job_id, ended)

    async def close(self) -> None:
        """Stop polling. Callers that still wait are cancelled."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._cancel_all()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Cancel the waiting callers when the polling task was cancelled: it does not end otherwise."""
        if self._task is task:
            self._task = None
            self._cancel_all()

    def _forget(self, job_id: str, ended: asyncio.Future[None]) -> None:
        others = self._waiting.get(job_id, [])
        if ended in others:
            others.remove(ended)
        if not others:
            self._waiting.pop(job_id, None)

    async def _run(self) -> None:
        unsubscribe = self._store.listen(self._on_hint, (HintKind.FINISHED,))
        try:
            while True:
                await self._rest()
                await self.run_once()
        finally:
            unsubscribe()

    async def run_once(self) -> None:
        """Ask the store once for all callers that wait."""
        self._poll_due.clear()
        if not self._waiting:
            return
        try:
            ended = await self._store.await_ends(list(self._waiting))
        except StoreUnavailable:
            return  # the next poll asks again
        except Exception as error:  # noqa: BLE001 - the edge of a loop: raised to the callers that wait
            self._fail_all(error)
            return
        for job_id in ended:
            self._wake(job_id)

    async def _rest(self) -> None:
        """Wait for a new caller or for the next poll; without callers there is no poll."""
        pause = self._poll.total_seconds() * (0.5 + self._random.random()) if self._waiting else None
        try:
            async with asyncio.timeout(pause):
                await self._poll_due.wait()
        except TimeoutError:
            return

    def _on_hint(self, hint: Hint) -> None:
        if hint.subject:
            self._wake(hint.subject)
        else:
            self._poll_due.set()  # a job may have ended, and the hint does not say which: one poll for all

    def _fail_all(self, error: Exception) -> None:
        for job_id in list(self._waiting):
            for ended in self._waiting.pop(job_id):
                if not ended.done():
                    ended.set_exception(error)

    def _cancel_all(self) -> None:
        for job_id in list(self._waiting):
            for ended in self._waiting.pop(job_id):
                ended.cancel()

    def _wake(self, job_id: str) -> None:
        for ended in self._waiting.pop(job_id, []):
            if not ended.done():
                ended.set_result(None)
