"""A backup is called while its provider is broken, or in the last attempt."""

import pytest

from holdfast import Holdfast, JobFailed, current
from holdfast.errors import ConfigError
from holdfast.types import EventKind
from tests.contract.conftest import Logger
from tests.contract.services import STEADY, Service, declared, down, held, limited, submitted
from tests.contract.steps import TIMEOUT


@pytest.mark.clause("BRK-2")
@pytest.mark.clause("BRK-6")
async def test_a_backup_takes_over_from_a_broken_provider_and_the_history_says_so(
    hold: Holdfast, service: Service, logger: Logger
) -> None:
    asked: list[str | None] = []
    llm = hold.provider("llm", breaker=STEADY, backup="llm-eu")
    hold.provider("llm-eu")

    @hold.stage(provider=llm, attempts=9)
    async def ask() -> str:
        asked.append(current().provider)
        if current().provider == "llm":
            raise down()
        return "answer"

    @hold.job("review")
    async def review() -> str:
        return await ask()

    async with hold.worker(slots=1, poll=0.05):
        for _ in range(3):
            handle = await review.submit()
            assert await handle.result(timeout=TIMEOUT) == "answer"

    assert asked == ["llm"] * 4 + ["llm-eu"] * 3
    [stage] = [event for event in await hold.events(handle.id) if event.kind is EventKind.STAGE]
    assert stage.meta["provider"] == "llm-eu"
    assert logger.lines("backup used")[0]["backup"] == "llm-eu"


@pytest.mark.clause("BRK-6")
@pytest.mark.clause("RET-7")
async def test_a_backup_has_the_last_word_when_the_attempts_are_spent(hold: Holdfast) -> None:
    asked: list[str | None] = []
    stt = hold.provider("stt", backup=hold.provider("stt-2"))

    @hold.stage(provider=stt, attempts=3)
    async def transcribe() -> str:
        asked.append(current().provider)
        if current().provider == "stt":
            raise down()
        return "words"

    @hold.job("grade")
    async def grade() -> str:
        return await transcribe()

    async with hold.worker(slots=1, poll=0.05):
        assert await (await grade.submit()).result(timeout=TIMEOUT) == "words"

    assert asked == ["stt", "stt", "stt", "stt-2"]


@pytest.mark.clause("BRK-6")
async def test_two_that_back_each_other_up_are_each_asked_once_in_the_last_attempt(hold: Holdfast) -> None:
    asked: list[str | None] = []
    one = hold.provider("one", backup="two")
    hold.provider("two", backup="one")

    @hold.stage(provider=one, attempts=1)
    async def ask() -> None:
        asked.append(current().provider)
        raise down()

    @hold.job("review")
    async def review() -> None:
        await ask()

    async with hold.worker(slots=1, poll=0.05):
        with pytest.raises(JobFailed):
            await (await review.submit()).result(timeout=TIMEOUT)

    assert asked == ["one", "two"]


@pytest.mark.clause("BRK-6")
async def test_a_provider_that_asks_its_callers_to_wait_is_waited_for_and_its_backup_is_not_called(
    hold: Holdfast, service: Service
) -> None:
    hold.provider("llm-eu")
    job = declared(hold, service, hold.provider("llm", backup="llm-eu"))
    service.error = limited(after=60)

    async with hold.worker(slots=1, poll=0.05):
        await submitted(job, 3)
        await held(hold, "llm", 2)  # the first waits for its retry

    assert len(service.calls) == 1


async def test_a_backup_that_is_declared_nowhere_stops_the_start(hold: Holdfast) -> None:
    hold.provider("llm", backup="llm-eu")

    with pytest.raises(ConfigError, match="backup 'llm-eu', which is not declared"):
        async with hold.worker():
            pass


async def test_a_paused_provider_has_no_backup_and_one_that_is_forced_open_has(hold: Holdfast) -> None:
    llm = hold.provider("llm", backup=hold.provider("llm-eu"))

    @hold.stage(provider=llm)
    async def ask() -> str | None:
        return current().provider

    @hold.job("review")
    async def review() -> str | None:
        return await ask()

    await hold.providers.pause("llm", actor="ann")
    async with hold.worker(slots=2, poll=0.05):
        handle = await review.submit()
        await held(hold, "llm", 1)
        await hold.providers.open("llm", actor="ann")
        assert await (await review.submit()).result(timeout=TIMEOUT) == "llm-eu"
        assert await handle.result(timeout=TIMEOUT) == "llm-eu"
