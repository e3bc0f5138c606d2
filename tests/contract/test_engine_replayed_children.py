"""A job that is replayed goes on with what it had submitted: what has completed stays so, what has failed is replayed."""

from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast, JobFailed, JobFilter, JobFunction, Permanent, Status, current
from holdfast.operations import LetterState
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import ALL, failed, letter_of, opened, planned, replayed
from tests.contract.services import Service, down
from tests.contract.steps import TIMEOUT


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger) as made:
        yield made


class Outside:
    """Who is called: for the mail, for the payment, and by the order itself."""

    def __init__(self) -> None:
        self.post, self.bank, self.carrier = Service(), Service(), Service()


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def order(hold: Holdfast, outside: Outside) -> JobFunction[[int], int]:
    """A job that submits a mail and a payment, waits for the payment, and then ships."""

    @hold.job("mail")
    async def mail(number: int) -> int:
        return await outside.post.call(number)

    @hold.job("pay")
    async def pay(number: int) -> int:
        return await outside.bank.call(number)

    @hold.stage("ship")
    async def ship(number: int) -> int:
        return await outside.carrier.call(number)

    @hold.job("order")
    async def order(number: int) -> int:
        await mail.submit(number)
        await (await pay.submit(number)).result()
        return await ship(number)

    return order


@pytest.mark.clause("OPS-2")
async def test_what_a_job_had_submitted_is_not_submitted_again(
    hold: Holdfast, order: JobFunction[[int], int], outside: Outside, clock: DatabaseClock
) -> None:
    outside.carrier.error = down()
    job_id = await failed(hold, order, 7)
    token = await planned(hold, job_id)
    outside.carrier.error = None

    async with hold.worker(poll=0.05):
        await replayed(hold, clock, token)

    assert (await hold.read(job_id)).status is Status.COMPLETED
    assert (outside.post.calls, outside.bank.calls) == ([7], [7])


@pytest.mark.clause("OPS-2")
async def test_a_job_that_runs_all_again_submits_all_again_and_later_generations_keep_that(
    hold: Holdfast, order: JobFunction[[int], int], outside: Outside, clock: DatabaseClock
) -> None:
    outside.carrier.error = down()
    job_id = await failed(hold, order, 7)

    async with hold.worker(poll=0.05):
        await replayed(hold, clock, await planned(hold, job_id, restart=True))
        assert (outside.post.calls, outside.bank.calls) == ([7, 7], [7, 7])
        await replayed(hold, clock, await planned(hold, job_id))
        await replayed(hold, clock, await planned(hold, job_id, restart=True))
        outside.carrier.error = None
        await replayed(hold, clock, await planned(hold, job_id))

    job = await hold.read(job_id)
    assert (job.status, job.generation) == (Status.COMPLETED, 5)
    assert (outside.post.calls, outside.bank.calls) == ([7, 7, 7], [7, 7, 7])
    assert not [event for event in await hold.events(job_id) if "@restarted" in str(event.meta)]


@pytest.mark.clause("OPS-2")
async def test_what_has_failed_comes_back_with_the_job_that_waits_for_it(
    hold: Holdfast, order: JobFunction[[int], int], outside: Outside, clock: DatabaseClock
) -> None:
    outside.bank.error = down()
    job_id = await failed(hold, order, 7)
    [child] = await hold.find(JobFilter(name="pay"))
    before = len(outside.bank.calls)
    outside.bank.error = None

    async with hold.worker(poll=0.05):
        await replayed(hold, clock, await planned(hold, job_id))

    assert [each.id for each in await hold.find(JobFilter(name="pay"))] == [child.id], (
        "there is no second one"
    )
    again = await hold.read(child.id)
    assert (again.status, again.generation, len(outside.bank.calls)) == (Status.COMPLETED, 2, before + 1)
    assert (await hold.read(job_id)).status is Status.COMPLETED
    assert (await letter_of(hold, child.id)).state is LetterState.CLOSED


@pytest.mark.clause("OPS-2")
async def test_what_fails_again_fails_the_replay_and_is_replayed_once(
    hold: Holdfast, order: JobFunction[[int], int], outside: Outside
) -> None:
    outside.bank.error = down()
    job_id = await failed(hold, order, 7)
    [child] = await hold.find(JobFilter(name="pay"))

    async with hold.worker(poll=0.05):
        await hold.retry(job_id)
        with pytest.raises(JobFailed):
            await hold.handle(job_id).result(timeout=TIMEOUT)

    assert (await hold.read(child.id)).generation == 2


@pytest.mark.clause("OPS-2")
@pytest.mark.parametrize("canary", [0, 1])
async def test_a_job_and_what_it_waits_for_can_be_replayed_in_one_plan(
    hold: Holdfast, order: JobFunction[[int], int], outside: Outside, clock: DatabaseClock, canary: int
) -> None:
    outside.bank.error = down()
    job_id = await failed(hold, order, 7)
    before = len(outside.bank.calls)
    outside.bank.error = None
    assert len({letter.fingerprint for letter in await hold.dead_letters.list(ALL)}) == 1, (
        "one group, for an operator"
    )

    async with hold.worker(poll=0.05):
        await replayed(hold, clock, await planned(hold, canary=canary))
        assert (await hold.wait(job_id, timeout=TIMEOUT)).status is Status.COMPLETED

    assert len(outside.bank.calls) == before + 1


async def test_what_a_replay_submits_itself_and_fails_stays_failed(hold: Holdfast) -> None:
    @hold.job("pay")
    async def pay(generation: int) -> None:
        raise Permanent("no")

    @hold.job("order")
    async def order() -> None:
        if current().generation == 1:
            raise Permanent("not yet")
        await (await pay.submit(current().generation)).result()

    job_id = await failed(hold, order)
    async with hold.worker(poll=0.05):
        await hold.retry(job_id)
        with pytest.raises(JobFailed, match="no"):
            await hold.handle(job_id).result(timeout=TIMEOUT)

    [child] = await hold.find(JobFilter(name="pay"))
    assert (child.status, child.generation) == (Status.FAILED, 1)
