"""Operators override a breaker: they force a provider open, pause, observe, probe and resume it."""

import asyncio

import pytest

from holdfast import Holdfast, JobFailed
from holdfast.errors import ConfigError, StateRefused
from tests.contract.services import STEADY, Service, declared, down, held, reasons, submitted, tried, until
from tests.contract.steps import TIMEOUT


async def test_an_operator_opens_a_provider_and_its_jobs_wait_until_it_is_resumed(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm"))
    await hold.providers.open("llm", actor="ann", reason="maintenance")

    async with hold.worker(slots=2, poll=0.05):
        [handle] = await submitted(job, 1)
        await held(hold, "llm", 1)
        status = await hold.providers.show("llm")
        assert (status.state, status.actor, status.reason) == ("forced open", "ann", "maintenance")
        assert await reasons(hold, await hold.read(handle.id)) == ["llm is forced open by ann: maintenance"]
        await hold.providers.resume("llm", actor="bob")
        assert await handle.result(timeout=TIMEOUT) == 0

    kinds = [event.kind for event in await hold.providers.events("llm")]
    assert kinds == ["resumed", "ordered"]


async def test_an_observed_provider_is_called_whatever_its_breaker_would_do(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=1)
    await hold.providers.observe("llm", actor="ann")
    service.error = down()

    async with hold.worker(slots=1, poll=0.05):
        for handle in await submitted(job, 8):
            with pytest.raises(JobFailed):
                await handle.result(timeout=TIMEOUT)

    assert len(service.calls) == 8
    assert "opened" in [event.kind for event in await hold.providers.events("llm")]


async def test_a_probe_sends_one_held_job_ahead_of_time(hold: Holdfast, service: Service) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=9)
    service.error = down()
    async with hold.worker(slots=2, poll=0.05):
        handles = await submitted(job, 6)
        await held(hold, "llm", 6)
        calls = len(service.calls)
        await hold.providers.probe("llm", actor="ann")
        await until(lambda: tried(hold, 1))
        await held(hold, "llm", 6)
        assert len(service.calls) == calls + 1
        service.error = None
        await hold.providers.probe("llm", actor="ann")
        for handle in handles:
            await handle.result(timeout=TIMEOUT)


async def test_overrides_that_make_no_sense_are_refused(hold: Holdfast) -> None:
    hold.provider("llm")

    with pytest.raises(ConfigError, match="there is no provider 'lmm'; known are: llm"):
        await hold.providers.open("lmm", actor="ann")
    with pytest.raises(StateRefused, match="has no override to clear"):
        await hold.providers.resume("llm", actor="ann")
    with pytest.raises(StateRefused, match="nothing to probe"):
        await hold.providers.probe("llm", actor="ann")


async def test_plain_code_handles_providers_too(hold: Holdfast) -> None:
    hold.provider("llm")

    def operate() -> str:
        hold.providers.pause_sync("llm", actor="ann")
        state = hold.providers.show_sync("llm").state
        hold.providers.resume_sync("llm", actor="ann")
        return state

    assert await asyncio.to_thread(operate) == "paused"
    await asyncio.to_thread(hold.close_sync)


@pytest.mark.parametrize("actor", ["", None], ids=["empty", "none"])
async def test_an_override_without_an_actor_is_refused(hold: Holdfast, actor: str) -> None:
    hold.provider("llm")

    with pytest.raises(ConfigError, match="actor must not be empty"):
        await hold.providers.open("llm", actor=actor)


async def test_where_nothing_is_declared_an_unknown_provider_may_be_known_elsewhere(hold: Holdfast) -> None:
    with pytest.raises(ConfigError, match="known only where it is declared"):
        await hold.providers.show("mail")
