"""A store whose texts are encoded on their way in, and decoded on their way out.

Whoever works with it sees plain JSON, and the store behind it nothing but what the codec made. A text that cannot
be decoded comes out as it is stored: whoever needs it says so, and the others go on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from holdfast.core.dead_letters.letter import Step
from holdfast.core.dead_letters.replay_plan import Plan
from holdfast.core.envelope import unwrap, wrap
from holdfast.core.jobs.job import Claim, End, Job, Receipt, Signal, Submission
from holdfast.core.jobs.stages import StageRow
from holdfast.core.jobs.transitions import Finish, StageWrite, Transition
from holdfast.ports import Codec, Store
from holdfast.ports.letters import Seen
from holdfast.ports.store import Settled, SubmissionRefusal

Answered = TypeVar("Answered", End, StageRow)


class EncodedStore:
    """A `Store` in front of another one; what is not about texts goes straight through."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store = store
        self._codec = codec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def submit(
        self, batch: Sequence[Submission], *, again: bool = False
    ) -> list[Receipt | SubmissionRefusal]:
        return await self._store.submit(self._submissions(batch), again=again)

    async def submit_within(
        self, connection: Any, batch: Sequence[Submission]
    ) -> list[Receipt | SubmissionRefusal]:
        return await self._store.submit_within(connection, self._submissions(batch))

    async def advance_schedule(
        self, name: str, old: datetime, new: datetime, batch: Sequence[Submission]
    ) -> bool:
        return await self._store.advance_schedule(name, old, new, self._submissions(batch))

    async def claim(
        self,
        worker: str,
        queue: str,
        *,
        limit: int,
        lease: timedelta,
        knows: Sequence[str] | None = None,
    ) -> list[Claim]:
        claims = await self._store.claim(worker, queue, limit=limit, lease=lease, knows=knows)
        return [claim._replace(args=self._out(claim.args)) for claim in claims]

    async def settle(self, worker: str, batch: Sequence[Transition]) -> list[Settled]:
        return await self._store.settle(worker, [self._transition(change) for change in batch])

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        return self._answers(await self._store.stages(job_ids))

    async def ends(self, job_ids: Sequence[str]) -> list[End]:
        return self._answers(await self._store.ends(job_ids))

    async def signal(
        self, job_id: str, name: str, data: str, *, owner: str | None = None, actor: str = ""
    ) -> None:
        await self._store.signal(job_id, name, self._in(data), owner=owner, actor=actor)

    async def signals(self, job_ids: Sequence[str]) -> list[Signal]:
        found = await self._store.signals(job_ids)
        return [signal._replace(data=self._out(signal.data)) for signal in found]

    async def accept_late(
        self,
        job_id: str,
        *,
        owner: str | None = None,
        meta: str,
        then: Submission | None = None,
        late_at: datetime | None = None,
    ) -> Job:
        follower = None if then is None else self._submissions([then])[0]
        accepted = await self._store.accept_late(
            job_id, owner=owner, meta=meta, then=follower, late_at=late_at
        )
        return self._job(accepted)

    async def move_letters(
        self,
        seen: Sequence[Seen],
        steps: Sequence[Step],
        *,
        plan: Plan | None = None,
        args: str | None = None,
    ) -> list[str]:
        stored = None if args is None else self._in(args)
        return await self._store.move_letters(seen, steps, plan=plan, args=stored)

    async def original_args(self, job_id: str) -> str | None:
        return unwrap(await self._store.original_args(job_id), self._codec.decode)

    async def retry(self, job_id: str, *, owner: str | None = None, generation: int | None = None) -> Job:
        return self._job(await self._store.retry(job_id, owner=owner, generation=generation))

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        return self._job(await self._store.get(job_id, owner=owner))

    def _in(self, text: str) -> str:
        return wrap(text, self._codec.encode) or ""

    def _out(self, text: str) -> str:
        return unwrap(text, self._codec.decode) or ""

    def _submissions(self, batch: Iterable[Submission]) -> list[Submission]:
        return [item._replace(args=self._in(item.args)) for item in batch]

    def _transition(self, change: Transition) -> Transition:
        if isinstance(change, Finish | StageWrite) and change.result is not None:
            return change._replace(result=self._in(change.result))
        return change

    def _answers(self, found: Iterable[Answered]) -> list[Answered]:
        decode = self._codec.decode
        return [answer._replace(result=unwrap(answer.result, decode)) for answer in found]

    def _job(self, job: Job) -> Job:
        decode = self._codec.decode
        return replace(
            job,
            args=self._out(job.args),
            result=unwrap(job.result, decode),
            late_result=unwrap(job.late_result, decode),
        )
