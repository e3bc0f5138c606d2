"""A store that encodes texts before they are written, and decodes them after they are read.

The engine sees plain JSON, and the inner store sees only what the codec returned. A text that cannot be decoded is
returned as it is stored: a caller that needs its value raises an error, and the others continue.
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
from holdfast.core.messages.dead_message import DeadMessage
from holdfast.core.messages.inbox import InboxAnswer, InboxItem
from holdfast.ports import Codec, Store
from holdfast.ports.dead_letters import Seen
from holdfast.ports.messages.inbox import Make
from holdfast.ports.store import Settled, SubmissionRefusal

Answered = TypeVar("Answered", End, StageRow)
Work = TypeVar("Work", Submission | None, Submission | DeadMessage | None)


class EncodedStore:
    """A `Store` in front of another one; methods without texts are those of the inner store.

    The outbox is that of the inner store, too: its payloads leave the system in clear, and are not encoded.
    """

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store = store
        self._texts = _Texts(codec)
        self.dead_letters = EncodedDeadLetters(store, self._texts)
        self.dispatches = EncodedDispatches(store, self._texts)
        self.schedules = EncodedSchedules(store, self._texts)
        self.inbox = EncodedInbox(store, self._texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def submit(
        self, batch: Sequence[Submission], *, again: bool = False
    ) -> list[Receipt | SubmissionRefusal]:
        return await self._store.submit(self._texts.submissions(batch), again=again)

    async def submit_within(
        self, connection: Any, batch: Sequence[Submission]
    ) -> list[Receipt | SubmissionRefusal]:
        return await self._store.submit_within(connection, self._texts.submissions(batch))

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
        return self._texts.claims(claims)

    async def settle(self, worker: str, batch: Sequence[Transition]) -> list[Settled]:
        return await self._store.settle(worker, [self._texts.transition(change) for change in batch])

    async def settle_within(self, connection: Any, end: Finish) -> Settled:
        encoded = end if end.result is None else end._replace(result=self._texts.encode(end.result))
        return await self._store.settle_within(connection, encoded)

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        return self._texts.answers(await self._store.stages(job_ids))

    async def ends(self, job_ids: Sequence[str]) -> list[End]:
        return self._texts.answers(await self._store.ends(job_ids))

    async def signal(
        self, job_id: str, name: str, data: str, *, owner: str | None = None, actor: str = ""
    ) -> None:
        await self._store.signal(job_id, name, self._texts.encode(data), owner=owner, actor=actor)

    async def signals(self, job_ids: Sequence[str]) -> list[Signal]:
        found = await self._store.signals(job_ids)
        return [signal._replace(data=self._texts.decode(signal.data)) for signal in found]

    async def accept_late(
        self,
        job_id: str,
        *,
        owner: str | None = None,
        meta: str,
        then: Submission | None = None,
        late_at: datetime | None = None,
    ) -> Job:
        follower = None if then is None else self._texts.submissions([then])[0]
        accepted = await self._store.accept_late(
            job_id, owner=owner, meta=meta, then=follower, late_at=late_at
        )
        return self._texts.job(accepted)

    async def retry(self, job_id: str, *, owner: str | None = None, generation: int | None = None) -> Job:
        return self._texts.job(await self._store.retry(job_id, owner=owner, generation=generation))

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        return self._texts.job(await self._store.get(job_id, owner=owner))


class EncodedDeadLetters:
    """A `DeadLetterStore` in front of another store's, which is looked up at each call."""

    def __init__(self, store: Store, texts: "_Texts") -> None:
        self._store = store
        self._texts = texts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.dead_letters, name)

    async def move(
        self,
        seen: Sequence[Seen],
        steps: Sequence[Step],
        *,
        plan: Plan | None = None,
        args: str | None = None,
    ) -> list[str]:
        stored = None if args is None else self._texts.encode(args)
        return await self._store.dead_letters.move(seen, steps, plan=plan, args=stored)

    async def original_args(self, job_id: str) -> str | None:
        return self._texts.decode_optional(await self._store.dead_letters.original_args(job_id))


class EncodedDispatches:
    """A `DispatchStore` in front of another store's, which is looked up at each call."""

    def __init__(self, store: Store, texts: "_Texts") -> None:
        self._store = store
        self._texts = texts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.dispatches, name)

    async def claim(
        self, worker: str, job_ids: Sequence[str], *, lease: timedelta, knows: Sequence[str] | None = None
    ) -> list[Claim]:
        return self._texts.claims(
            await self._store.dispatches.claim(worker, job_ids, lease=lease, knows=knows)
        )


class EncodedSchedules:
    """A `ScheduleStore` in front of another store's, which is looked up at each call."""

    def __init__(self, store: Store, texts: "_Texts") -> None:
        self._store = store
        self._texts = texts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.schedules, name)

    async def advance(self, name: str, old: datetime, new: datetime, batch: Sequence[Submission]) -> bool:
        return await self._store.schedules.advance(name, old, new, self._texts.submissions(batch))


class EncodedInbox:
    """An `InboxStore` in front of another store's, which is looked up at each call."""

    def __init__(self, store: Store, texts: "_Texts") -> None:
        self._store = store
        self._texts = texts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.inbox, name)

    async def receive(self, consumer: str, batch: Sequence[InboxItem]) -> list[InboxAnswer]:
        encoded = [item._replace(work=self._texts.work(item.work)) for item in batch]
        return await self._store.inbox.receive(consumer, encoded)

    async def receive_with(self, consumer: str, batch: Sequence[InboxItem], make: Make) -> list[InboxAnswer]:
        async def make_encoded(item: InboxItem, connection: Any) -> Submission | None:
            return self._texts.work(await make(item, connection))

        return await self._store.inbox.receive_with(consumer, batch, make_encoded)


class _Texts:
    """Encodes and decodes the texts inside values."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def encode(self, text: str) -> str:
        return wrap(text, self._codec.encode) or ""

    def decode(self, text: str) -> str:
        return self.decode_optional(text) or ""

    def decode_optional(self, text: str | None) -> str | None:
        return unwrap(text, self._codec.decode)

    def claims(self, claims: Iterable[Claim]) -> list[Claim]:
        return [claim._replace(args=self.decode(claim.args)) for claim in claims]

    def work(self, work: Work) -> Work:
        """Encode the arguments of a job, or of a dead letter's job."""
        return None if work is None else work._replace(args=self.encode(work.args))

    def submissions(self, batch: Iterable[Submission]) -> list[Submission]:
        return [item._replace(args=self.encode(item.args)) for item in batch]

    def transition(self, change: Transition) -> Transition:
        if isinstance(change, Finish | StageWrite) and change.result is not None:
            return change._replace(result=self.encode(change.result))
        return change

    def answers(self, found: Iterable[Answered]) -> list[Answered]:
        return [answer._replace(result=self.decode_optional(answer.result)) for answer in found]

    def job(self, job: Job) -> Job:
        return replace(
            job,
            args=self.decode(job.args),
            result=self.decode_optional(job.result),
            late_result=self.decode_optional(job.late_result),
        )
