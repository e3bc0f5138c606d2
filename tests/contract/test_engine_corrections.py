"""A job whose arguments were wrong goes on with others; what it was submitted with is kept."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from holdfast import ErrorClass, Holdfast, JobFunction, Permanent
from holdfast.errors import ConfigError, PayloadInvalid
from holdfast.operations import LetterState
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import ALL, failed, letter_of, opened, replayed

S = LetterState


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger) as made:
        yield made


def letter_writer(hold: Holdfast, calls: list[str]) -> JobFunction[[str, str], str]:
    """Declare a job that fetches an address, and then fails in a tone that is unknown."""

    @hold.stage("fetch")
    async def fetch(address: str) -> str:
        calls.append(address)
        return f"page of {address}"

    @hold.stage("write")
    async def write(page: str, tone: str) -> str:
        if tone not in ("warm", "cool"):
            raise Permanent(f"this tone is unknown on the {page}")
        return f"{tone}: {page}"

    @hold.job("letter")
    async def letter(address: str, tone: str) -> str:
        return await write(await fetch(address), tone)

    return letter


@pytest.mark.clause("OPS-2")
@pytest.mark.parametrize(
    ("correct", "restart", "result", "fetched"),
    [
        ({"tone": "warm"}, False, "warm: page of x.test", ["x.test"]),
        (
            {"tone": "cool", "address": "y.test"},
            True,
            "cool: page of y.test",
            ["x.test", "y.test"],
        ),
    ],
    ids=["stages kept", "restart"],
)
async def test_a_job_can_go_on_with_corrected_arguments_and_its_own_are_kept(
    hold: Holdfast,
    clock: DatabaseClock,
    *,
    correct: dict[str, str],
    restart: bool,
    result: str,
    fetched: list[str],
) -> None:
    calls: list[str] = []
    job_id = await failed(hold, letter_writer(hold, calls), "x.test", "wram")
    await hold.dead_letters.triage(job_id, "data", actor="ann")
    await hold.dead_letters.remediate(job_id, "a typing error", actor="ann", correct=correct)
    plan = await hold.dead_letters.plan(job_id, safe="keyed", actor="ann", restart=restart)
    assert plan.token is not None
    async with hold.worker(poll=0.05):
        await replayed(hold, clock, plan.token)
    found, job = await hold.dead_letters.show(job_id), await hold.read(job_id)

    assert (json.loads(job.result or ""), calls) == (result, fetched)
    assert found.letter.corrected
    original = await hold.runtime.store.dead_letters.original_args(job_id)
    assert json.loads(original or "") == {"address": "x.test", "tone": "wram"}
    assert [step.meta.get("corrected") for step in found.steps if step.state is S.REMEDIATED] == [
        sorted(correct)
    ]


@pytest.mark.clause("OPS-2")
async def test_corrected_arguments_are_checked_before_anything_is_changed(hold: Holdfast) -> None:
    job_id = await failed(hold, letter_writer(hold, []), "x.test", "wram")
    await hold.dead_letters.triage(job_id, "data", actor="ann")
    before = await hold.read(job_id)

    with pytest.raises(PayloadInvalid, match="job 'letter': argument tone: Input should be a valid string"):
        await hold.dead_letters.remediate(job_id, "typing error", actor="ann", correct={"tone": 5})
    with pytest.raises(PayloadInvalid, match="job 'letter' has no argument 'mood'; it has address, tone"):
        await hold.dead_letters.remediate(job_id, "typing error", actor="ann", correct={"mood": "warm"})
    with pytest.raises(ConfigError, match="arguments are corrected for one job at a time; name it by its id"):
        await hold.dead_letters.remediate(ALL, "typing error", actor="ann", correct={"tone": "warm"})
    await hold.dead_letters.remediate(
        job_id, "typing error", actor="ann", correct={"tone": "warm"}, dry_run=True
    )

    assert (await hold.read(job_id)).args == before.args
    assert await hold.runtime.store.dead_letters.original_args(job_id) is None
    assert (await letter_of(hold, job_id)).state is S.TRIAGED


@pytest.mark.clause("OPS-2")
async def test_a_finished_stage_never_stands_for_arguments_that_were_corrected_since(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    calls: list[str] = []
    job_id = await failed(hold, letter_writer(hold, calls), "x.test", "wram")
    await hold.dead_letters.triage(job_id, "data", actor="ann")
    corrected = {"address": "y.test", "tone": "warm"}
    await hold.dead_letters.remediate(job_id, "both were wrong", actor="ann", correct=corrected)
    plan = await hold.dead_letters.plan(job_id, safe="keyed", actor="ann")
    assert plan.token is not None
    async with hold.worker(poll=0.05):
        await replayed(hold, clock, plan.token)
    letter = await letter_of(hold, job_id)

    assert (letter.state, letter.error_class) == (S.NEW, ErrorClass.STAGE_MISMATCH)
    assert calls == ["x.test"]


@pytest.mark.clause("OPS-2")
async def test_arguments_that_are_corrected_twice_keep_those_of_the_submission(hold: Holdfast) -> None:
    job_id = await failed(hold, letter_writer(hold, []), "x.test", "wram")
    await hold.dead_letters.triage(job_id, "data", actor="ann")
    for tone in ("wamr", "warm"):
        await hold.dead_letters.remediate(job_id, "typing error", actor="ann", correct={"tone": tone})

    assert json.loads((await hold.read(job_id)).args) == {"address": "x.test", "tone": "warm"}
    original = await hold.runtime.store.dead_letters.original_args(job_id)
    assert json.loads(original or "") == {"address": "x.test", "tone": "wram"}


async def test_an_argument_is_corrected_with_what_python_has_for_it(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    @hold.job("remind")
    async def remind(due: datetime) -> str:
        if due.year < 2000:
            raise Permanent("that was in another century")
        return due.isoformat()

    job_id = await failed(hold, remind, datetime(1926, 5, 1, 12, tzinfo=UTC))
    await hold.dead_letters.triage(job_id, "data", actor="ann")
    with pytest.raises(PayloadInvalid, match="a corrected argument cannot be stored as JSON"):
        await hold.dead_letters.remediate(job_id, "a typo", actor="ann", correct={"due": object()})
    await hold.dead_letters.remediate(
        job_id, "a typo", actor="ann", correct={"due": datetime(2026, 5, 1, 12, tzinfo=UTC)}
    )
    planned = await hold.dead_letters.plan(job_id, safe="nothing was sent", actor="ann")
    assert planned.token is not None

    async with hold.worker(poll=0.05):
        await replayed(hold, clock, planned.token)

    assert json.loads((await hold.read(job_id)).result or "") == "2026-05-01T12:00:00+00:00"
