"""A job that waits runs again from its beginning, and meets what it met before, in whatever order it comes."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, Retryable, Status, current
from holdfast.core.jobs.stages import StageRow, StageStatus
from holdfast.core.jobs.transitions import Finish, complete, release
from holdfast.errors import JobNotFound, ResultTimeout, SignalTimeout, StoreUnavailable
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.types import EventKind
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import Database, Logger
from tests.contract.steps import LEASE, TIMEOUT, a_claim, claimed, eventually, submitted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

UNSERVED = "unserved"


async def waits_of(hold: Holdfast, job_id: str) -> dict[str, StageRow]:
    """Read what is stored of a job's waits."""
    rows = await hold.runtime.store.stages([job_id])
    return {str(row.key): row for row in rows if row.key.is_wait}


# What a job submits.


async def test_children_submitted_in_another_order_the_next_time_are_the_same_children(
    hold: Holdfast, logger: Logger
) -> None:
    runs: Counter[int] = Counter()
    may_end = [asyncio.Event() for _ in range(3)]
    may_end[2].set()

    @hold.stage()
    async def prepare(number: int) -> int:
        await may_end[number].wait()
        return number

    @hold.job("child")
    async def child(number: int) -> int:
        runs[number] += 1
        return number

    async def branch(number: int) -> int:
        handle = await child.submit(await prepare.options(key=str(number))(number))
        may_end[number - 1].set()  # so the stages end in the reverse order, and only in the first run
        return await handle.result()

    @hold.job("parent")
    async def parent() -> list[int]:
        return list(await asyncio.gather(*[branch(number) for number in range(3)]))

    async with hold.worker(poll=0.05):
        assert await (await parent.submit()).result(timeout=TIMEOUT) == [0, 1, 2]

    assert runs == {0: 1, 1: 1, 2: 1}
    assert logger.lines("key reused with another payload") == []


async def test_equal_submissions_are_distinguished_by_their_order_and_those_of_other_owners_not_at_all(
    hold: Holdfast,
) -> None:
    @hold.job("child")
    async def child(number: int) -> int:
        return number

    @hold.job("parent")
    async def parent() -> list[str]:
        made = [await child.submit(1), await child.submit(1), await child.options(owner="ada").submit(1)]
        await hold.sleep(0.01)
        return [handle.id for handle in made]

    async with hold.worker(poll=0.05):
        ids = await (await parent.submit()).result(timeout=TIMEOUT)

    assert len(set(ids)) == 3
    assert len(await hold.find()) == 4


# Code that swallows its unwinding.


@pytest.mark.parametrize("what", ["submit", "stage", "signal", "cancel", "sleep"])
async def test_code_that_swallows_the_wait_has_no_effect_afterwards(hold: Holdfast, what: str) -> None:
    effects: Counter[str] = Counter()
    other = await hold.job("other", queue=UNSERVED)(_nothing).submit()

    @hold.job("report")
    async def report() -> None:
        effects["submit"] += 1

    @hold.stage()
    async def charge() -> None:
        effects["stage"] += 1

    act: dict[str, Callable[[], Awaitable[Any]]] = {
        "submit": report.submit,
        "stage": charge,
        "signal": lambda: hold.signal(other.id, "go"),
        "cancel": lambda: hold.cancel(other.id),
        "sleep": lambda: hold.sleep(60),
    }

    @hold.job("careless", attempts=1)
    async def careless() -> str:
        swallowed = await asyncio.gather(hold.wait_for("go"), return_exceptions=True)
        with suppress(BaseException):
            await act[what]()
        return "went on" if isinstance(swallowed[0], BaseException) else "waited"

    async with hold.worker(poll=0.05):
        job = await careless.submit()
        await eventually(job.read, lambda found: found.waiting)
        assert (await other.read()).status is Status.QUEUED
        assert (effects, await hold.runtime.store.signals([other.id])) == (Counter(), [])
        assert set(await waits_of(hold, job.id)) == {"@signal go"}
        await hold.cancel(job.id)


async def _nothing() -> None: ...


async def test_a_plain_job_that_swallows_the_wait_has_no_effect_either(hold: Holdfast) -> None:
    seen: list[int] = []

    @hold.job("report")
    async def report(number: int) -> None:
        seen.append(number)

    @hold.job("careless")
    def careless() -> int:
        number = 0
        with suppress(BaseException):
            number = hold.wait_for_sync("number")
        report.submit_sync(number).result_sync()
        return number

    async with hold.worker(poll=0.05):
        job = await careless.submit()
        await eventually(job.read, lambda found: found.waiting)
        await hold.signal(job.id, "number", 7)
        assert await job.result(timeout=TIMEOUT) == 7

    assert seen == [7]


# Signals.


async def test_one_signal_satisfies_one_of_two_waits_side_by_side(hold: Holdfast) -> None:
    @hold.job("two")
    async def two() -> list[object]:
        return list(await asyncio.gather(hold.wait_for("ok"), hold.wait_for("ok")))

    job = await two.submit()
    await hold.signal(job.id, "ok", "Ada")
    async with hold.worker(poll=0.05):
        await eventually(job.read, lambda found: found.waiting)
        assert [row.status for row in (await waits_of(hold, job.id)).values()] == [
            StageStatus.DONE,
            StageStatus.STARTED,
        ]
        await hold.signal(job.id, "ok", "Bob")
        assert await job.result(timeout=TIMEOUT) == ["Ada", "Bob"]


async def test_a_wait_that_timed_out_times_out_again_though_the_signal_has_come(hold: Holdfast) -> None:
    @hold.job("late")
    async def late() -> str:
        try:
            await hold.wait_for("approved", timeout=0.05)
        except SignalTimeout:
            if current().attempt == 1:
                await hold.signal(current().job_id, "approved")
                raise Retryable("once more") from None
            return "no signal"
        return "approved"

    async with hold.worker(poll=0.05):
        assert await (await late.submit()).result(timeout=TIMEOUT) == "no signal"


async def test_a_job_that_ended_by_a_signal_that_did_not_come_waits_anew_when_it_is_retried(
    hold: Holdfast,
) -> None:
    @hold.job("publish")
    async def publish() -> str:
        return str(await hold.wait_for("approved", timeout=0.05))

    async with hold.worker(poll=0.05):
        job = await publish.submit()
        with pytest.raises(JobFailed, match="no signal 'approved' came"):
            await job.result(timeout=TIMEOUT)
    await job.retry()
    await hold.signal(job.id, "approved", "Ada")
    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == "Ada"


# Other jobs.


async def test_each_wait_for_a_result_has_its_own_time(hold: Holdfast) -> None:
    @hold.job("child", queue=UNSERVED)
    async def child() -> None: ...

    @hold.job("parent")
    async def parent() -> int:
        handle, gave_up = await child.submit(), 0
        for _ in range(3):
            try:
                await handle.result(timeout=0.02)
            except ResultTimeout:
                gave_up += 1
        return gave_up

    async with hold.worker(poll=0.05):
        job = await parent.submit()
        assert await job.result(timeout=TIMEOUT) == 3

    waits = (await waits_of(hold, job.id)).values()
    assert [row.status for row in waits] == [StageStatus.FAILED] * 3


async def test_a_job_that_waited_for_another_in_vain_ends_at_once_and_asks_anew_when_it_is_retried(
    hold: Holdfast, store: Store
) -> None:
    @hold.job("other", queue=UNSERVED)
    async def other() -> int: ...  # type: ignore[empty-body]  # never run

    @hold.job("times_out", attempts=3)
    async def times_out(job_id: str) -> int:
        number: int = await hold.handle(job_id).result(timeout=0.02)
        return number

    async with hold.worker(poll=0.05):
        job = await times_out.submit((await other.submit()).id)
        with pytest.raises(JobFailed, match="did not end within") as failed:
            await job.result(timeout=TIMEOUT)
        assert failed.value.failure.error_class is ErrorClass.TIMEOUT
        assert EventKind.RETRY not in [event.kind for event in await job.events()]
        await store.settle("worker", [complete(await claimed(store, queue=UNSERVED), "7")])
        await job.retry()
        assert await job.result(timeout=TIMEOUT) == 7


async def test_a_job_that_gave_up_on_another_stays_so_though_the_other_ends(
    hold: Holdfast, store: Store
) -> None:
    @hold.job("child", queue=UNSERVED)
    async def child() -> int: ...  # type: ignore[empty-body]  # never run

    @hold.job("parent")
    async def parent() -> str:
        handle = await child.submit()
        try:
            await handle.result(timeout=0.02)
        except ResultTimeout:
            await hold.wait_for("go on")
            return "gave up"
        return "has it"

    async with hold.worker(poll=0.05):
        job = await parent.submit()
        await eventually(job.read, lambda found: found.waiting and not found.pending)
        await store.settle("worker", [complete(await claimed(store, queue=UNSERVED), "1")])
        await hold.signal(job.id, "go on")
        assert await job.result(timeout=TIMEOUT) == "gave up"


async def test_a_job_that_has_seen_anothers_failure_sees_it_again_though_the_other_is_retried(
    hold: Holdfast, store: Store
) -> None:
    @hold.job("child", queue=UNSERVED)
    async def child() -> int: ...  # type: ignore[empty-body]  # never run

    @hold.job("parent")
    async def parent() -> str:
        handle = await child.submit()
        try:
            await handle.result()
        except JobFailed as error:
            await hold.wait_for("go on")
            return f"failed: {error.failure.message}"
        return "has it"

    async with hold.worker(poll=0.05):
        job = await parent.submit()
        await eventually(job.read, lambda found: found.waiting)
        born = await claimed(store, queue=UNSERVED)
        bad = Finish(born.id, born.token, Status.FAILED, failure=a_failure(message="no luck"))
        assert await store.settle("worker", [bad]) == [Settled.WRITTEN]
        await eventually(job.read, lambda found: found.waiting and not found.pending)
        await hold.retry(born.id)
        await hold.signal(job.id, "go on")
        assert await job.result(timeout=TIMEOUT) == "failed: no luck"


async def test_a_wait_for_a_job_that_does_not_exist_fails_with_its_reason(hold: Holdfast) -> None:
    @hold.job("parent", attempts=3)
    async def parent(job_id: str) -> None:
        await hold.handle(job_id).result()

    async with hold.worker(poll=0.05):
        for unknown in ("01900000-0000-7000-8000-000000000000", "no id at all"):
            with pytest.raises(JobFailed, match="there is no job") as failed:
                await (await parent.submit(unknown)).result(timeout=TIMEOUT)
            assert failed.value.failure.error_class is ErrorClass.NOT_FOUND


async def test_a_job_may_go_on_without_one_that_does_not_exist(hold: Holdfast) -> None:
    @hold.job("parent")
    async def parent() -> str:
        try:
            await hold.handle("01900000-0000-7000-8000-000000000000").result(timeout=60)
        except JobNotFound:
            return "alone"
        return "together"

    async with hold.worker(poll=0.05):
        assert await (await parent.submit()).result(timeout=TIMEOUT) == "alone"


async def test_a_job_is_waited_for_however_its_id_is_written_and_needs_no_name(hold: Holdfast) -> None:
    @hold.job("child")
    async def child() -> timedelta:
        return timedelta(minutes=1)

    @hold.job("parent")
    async def parent() -> float:
        born = await child.submit()
        length: timedelta = await hold.handle(born.id.upper()).result()
        return length.total_seconds()

    async with hold.worker(poll=0.05):
        assert await (await parent.submit()).result(timeout=TIMEOUT) == 60


async def test_a_job_that_waits_for_itself_is_refused(hold: Holdfast) -> None:
    @hold.job("narcissus")
    async def narcissus() -> None:
        await hold.handle(current().job_id.upper()).result()

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed, match="waits for its own end"):
            await (await narcissus.submit()).result(timeout=TIMEOUT)


class Faltering:
    """A store that does not answer at first, whatever it is asked about the jobs that are waited for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failed: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("ends", "await_jobs"):
            return method

        async def faltering(*args: Any) -> Any:
            self._failed[name] += 1
            if self._failed[name] <= 2:
                raise StoreUnavailable("PostgreSQL does not answer")
            return await method(*args)

        return faltering


async def test_a_store_that_is_away_during_a_wait_is_no_failure_of_the_job(hold: Holdfast) -> None:
    runs: Counter[str] = Counter()

    @hold.job("child", attempts=1)
    async def child() -> int:
        return 1

    @hold.job("parent", attempts=1)
    async def parent() -> int:
        runs["parent"] += 1
        return await (await child.submit()).result()

    hold.runtime = replace(hold.runtime, store=Faltering(hold.runtime.store))
    async with hold.worker(poll=0.05):
        job = await parent.submit()
        assert await job.result(timeout=TIMEOUT) == 1

    assert EventKind.RETRY not in [event.kind for event in await job.events()]


# What runs beside a wait.


async def test_what_a_branch_does_beside_a_wait_is_done_first_and_once(hold: Holdfast) -> None:
    runs: Counter[str] = Counter()

    @hold.stage()
    async def work(name: str) -> str:
        runs[name] += 1
        await asyncio.sleep(0.02)
        return name

    @hold.job("child", queue=UNSERVED)
    async def child() -> None: ...

    async def branch() -> None:
        await work("first")
        await asyncio.gather(*[work.options(key=name)(name) for name in ("left", "right")])
        await child.submit()
        await work("last")

    @hold.job("parent")
    async def parent() -> str:
        await asyncio.gather(branch(), hold.wait_for("go"))
        return "done"

    async with hold.worker(poll=0.05):
        job = await parent.submit()
        await eventually(job.read, lambda found: found.waiting)
        assert runs == {"first": 1, "left": 1, "right": 1, "last": 1}
        await hold.signal(job.id, "go")
        assert await job.result(timeout=TIMEOUT) == "done"

    assert set(runs.values()) == {1}
    assert [event.kind for event in await job.events()].count(EventKind.PARKED) == 1


async def test_a_sleep_that_begins_beside_an_older_wait_ends_in_its_time(hold: Holdfast) -> None:
    @hold.stage()
    async def work() -> None: ...

    slept = asyncio.Event()

    async def nap() -> None:
        await work()
        await hold.sleep(0.05)
        slept.set()

    @hold.job("both")
    async def both() -> None:
        await asyncio.gather(nap(), hold.wait_for("go"))

    async with hold.worker(poll=0.05):
        job = await both.submit()
        async with asyncio.timeout(TIMEOUT):
            await slept.wait()
        await hold.signal(job.id, "go")
        await job.result(timeout=TIMEOUT)


async def test_a_wait_that_its_own_code_gave_up_parks_no_job(hold: Holdfast) -> None:
    @hold.stage()
    async def work() -> None:
        await asyncio.Event().wait()

    @hold.job("times_out")
    async def times_out() -> str:
        try:
            async with asyncio.timeout(0.05):
                await asyncio.gather(work(), hold.sleep("1d"))
        except TimeoutError:
            return "gave up"
        return "slept"

    async with hold.worker(poll=0.05):
        job = await times_out.submit()
        assert await job.result(timeout=TIMEOUT) == "gave up"

    assert EventKind.PARKED not in [event.kind for event in await job.events()]


# Attempts.


@pytest.mark.clause("STG-2")
@pytest.mark.parametrize("before", ["nothing", "a sleep", "a signal that does not come"])
async def test_a_stage_does_not_pay_for_a_failure_before_it(hold: Holdfast, before: str) -> None:
    runs: Counter[str] = Counter()

    @hold.stage(attempts=1)
    async def charge() -> str:
        runs["charge"] += 1
        return "charged"

    @hold.job("pay", attempts=3)
    async def pay() -> str:
        runs["pay"] += 1
        if runs["pay"] == 1:
            raise Retryable("once more")
        if before == "a sleep":
            await hold.sleep(0.01)
        if before == "a signal that does not come":
            with suppress(SignalTimeout):
                await hold.wait_for("go", timeout=0)
        return await charge()

    async with hold.worker(poll=0.05):
        assert await (await pay.submit()).result(timeout=TIMEOUT) == "charged"

    assert runs["charge"] == 1


@pytest.mark.clause("STG-2")
async def test_a_wait_that_ends_beside_a_stage_gives_it_no_attempt(hold: Holdfast) -> None:
    runs: Counter[str] = Counter()

    @hold.stage(attempts=3)
    async def bad() -> None:
        runs["bad"] += 1
        await asyncio.sleep(0.02)  # the sleep beside it is over by then
        raise Retryable("down")

    @hold.job("both", attempts=9)
    async def both() -> None:
        beside = [hold.sleep(0)] if runs["bad"] == 1 else []
        await asyncio.gather(bad(), *beside)

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed, match="down"):
            await (await both.submit()).result(timeout=TIMEOUT)

    assert runs == {"bad": 3}


# Locks.


@pytest.mark.parametrize("database", ["postgres"], indirect=True)  # the one that has writers side by side
@pytest.mark.parametrize("how", ["end", "go back", "write stages", "wait"])
async def test_every_write_of_many_jobs_locks_them_in_one_order(
    store: Store, database: Database, how: str
) -> None:
    parent = await a_claim(store)
    first, second = sorted(await submitted(store, a_job(), a_job()))
    claims = {claim.id: claim for claim in await store.claim("worker", "default", limit=2, lease=LEASE)}
    ordered = [claims[second], claims[first]]
    writes: dict[str, Callable[[], Awaitable[Any]]] = {
        "end": lambda: store.settle("worker", [complete(claim, "1") for claim in ordered]),
        "go back": lambda: store.settle("worker", [release(claim, "stopped") for claim in ordered]),
        "write stages": lambda: store.settle("worker", [a_stage(claim) for claim in ordered]),
        "wait": lambda: store.await_jobs(parent.id, parent.token, [second, first]),
    }
    other = await asyncpg.connect(database.url)

    async with other.transaction():
        await other.execute("SELECT 1 FROM holdfast.jobs WHERE id = $1::uuid FOR UPDATE", first)
        writing = asyncio.ensure_future(writes[how]())
        async with asyncio.timeout(TIMEOUT):
            while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.005)
        locked = await other.fetch(
            "SELECT 1 FROM holdfast.jobs WHERE id = $1::uuid FOR UPDATE SKIP LOCKED", second
        )
    await writing
    await other.close()

    assert locked, "the second was locked before the first"
