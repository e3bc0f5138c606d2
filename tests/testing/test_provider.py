"""A provider that follows a script: what it answers, what it records, and when something took effect."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest

from holdfast import Backoff, ErrorClass, Holdfast, JobFailed, current
from holdfast.errors import ConfigError
from holdfast.testing import (
    Answer,
    Call,
    Crash,
    Hang,
    LostAnswer,
    RateLimited,
    ScriptedError,
    ScriptedProvider,
    Simulation,
    inline,
    simulated,
)

hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db", attempts=4, backoff=Backoff.constant(60))


class Bank:
    """Stands for the module of an application that keeps its client."""

    charge: Callable[[int], Any]


@hold.stage(attempts=4)
async def charge(amount: int) -> Any:
    return await Bank.charge(amount)


@hold.job("order")
async def order(amount: int) -> Any:
    return await charge(amount)


def by_call(provider: ScriptedProvider) -> None:
    async def call(amount: int) -> Any:
        return await provider({"amount": amount}, key=current().key)

    Bank.charge = staticmethod(call)


def by_client(provider: ScriptedProvider, library: Any = httpx) -> None:
    async def call(amount: int) -> Any:
        async with library.AsyncClient(transport=provider.transport(), timeout=10) as client:
            headers = {"Idempotency-Key": current().key}
            answer = await client.post("https://bank.test/charges", json={"amount": amount}, headers=headers)
            answer.raise_for_status()
            return answer.json()

    Bank.charge = staticmethod(call)


def by_kin(provider: ScriptedProvider) -> None:
    by_client(provider, httpx2)


uses = pytest.mark.parametrize("use", [by_call, by_client, by_kin])


async def test_each_call_takes_the_next_step_and_the_last_is_repeated() -> None:
    provider = ScriptedProvider("one", {"two": 2}, [3])

    assert [await provider() for _ in range(5)] == ["one", {"two": 2}, [3], [3], [3]]


async def test_a_number_is_the_status_of_an_answer() -> None:
    provider = ScriptedProvider(204, 503)

    assert await provider() is None
    with pytest.raises(ScriptedError) as caught:
        await provider()
    assert caught.value.status_code == 503


@pytest.mark.parametrize("step", [ConnectionRefusedError("connection refused"), ConnectionRefusedError])
async def test_an_exception_is_raised(step: Any) -> None:
    with pytest.raises(ConnectionRefusedError):
        await ScriptedProvider(step)()


async def test_a_function_decides_by_the_call() -> None:
    def decide(call: Call) -> Any:
        return 400 if call.payload < 0 else {"root": call.payload**0.5}

    provider = ScriptedProvider(decide)

    assert await provider(9) == {"root": 3}
    with pytest.raises(ScriptedError):
        await provider(-1)


def test_a_script_has_at_least_one_step() -> None:
    with pytest.raises(ConfigError, match="at least one step"):
        ScriptedProvider()


async def test_calls_are_recorded_with_key_and_payload() -> None:
    provider = ScriptedProvider("ok")

    await provider({"amount": 1}, key="a")
    await provider({"amount": 2})

    assert [(call.key, call.payload) for call in provider.calls] == [
        ("a", {"amount": 1}),
        (None, {"amount": 2}),
    ]


async def test_a_client_sends_method_address_and_key() -> None:
    provider = ScriptedProvider("ok")

    async with httpx.AsyncClient(transport=provider.transport()) as client:
        answer = await client.put(
            "https://bank.test/a?b=c", content=b"plain", headers={"idempotency-key": "k"}
        )

    [call] = provider.calls
    assert (call.method, call.url, call.key, call.payload) == ("PUT", "https://bank.test/a?b=c", "k", "plain")
    assert (answer.status_code, answer.text) == (200, "ok")


async def test_an_answer_has_status_headers_and_body() -> None:
    provider = ScriptedProvider(Answer({"error": "no"}, status=409, headers={"X-Request": "7"}))

    async with httpx.AsyncClient(transport=provider.transport()) as client:
        answer = await client.get("https://bank.test/")

    assert (answer.status_code, answer.headers["x-request"], answer.json()) == (409, "7", {"error": "no"})


async def test_each_call_without_a_key_takes_effect() -> None:
    provider = ScriptedProvider("ok")

    await provider(1)
    await provider(1)

    assert len(provider.effects) == 2


async def test_a_known_key_takes_no_second_effect_and_is_answered_as_before() -> None:
    provider = ScriptedProvider("first", 503, "second")

    assert await provider(1, key="k") == "first"
    with pytest.raises(ScriptedError):
        await provider(1, key="k")
    assert await provider(1, key="k") == "first"

    assert [call.key for call in provider.effects] == ["k"]


async def test_a_refused_call_takes_no_effect() -> None:
    provider = ScriptedProvider(500, RateLimited(), ConnectionRefusedError)

    for _ in range(3):
        with pytest.raises((ScriptedError, ConnectionRefusedError)):
            await provider(1)

    assert (len(provider.calls), provider.effects) == (3, [])


@uses
def test_a_job_gets_through_after_failures_of_every_kind(use: Callable[[ScriptedProvider], None]) -> None:
    provider = ScriptedProvider(
        503, RateLimited(retry_after="2m"), LostAnswer({"id": "ch_1"}), {"id": "ch_2"}
    )
    use(provider)

    @simulated(hold)
    async def run() -> None:
        assert await (await order.submit(30)).result() == {"id": "ch_1"}

    run()

    moments = [call.at for call in provider.calls]
    assert [later - earlier for earlier, later in itertools.pairwise(moments)] == pytest.approx([60, 120, 60])
    assert [call.payload for call in provider.effects] == [{"amount": 30}]


@uses
def test_a_worker_that_dies_after_the_effect_leads_to_no_second_one(
    use: Callable[[ScriptedProvider], None],
) -> None:
    provider = ScriptedProvider(Crash({"id": "ch_1"}), {"id": "ch_2"})
    use(provider)

    @simulated(hold)
    async def run() -> None:
        assert await (await order.submit(30)).result() == {"id": "ch_1"}

    run()

    assert (len(provider.calls), len(provider.effects)) == (2, 1)
    assert len({call.key for call in provider.calls}) == 1


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_client_gives_up_on_an_answer_that_takes_too_long(library: Any) -> None:
    provider = ScriptedProvider(
        Hang(), Answer({"id": "late"}, after="11s"), Answer({"id": "new"}, after="9s")
    )
    by_client(provider, library)

    @simulated(hold)
    async def run() -> None:
        assert await (await order.submit(30)).result() == {"id": "late"}

    run()

    moments = [call.at for call in provider.calls]
    assert [later - earlier for earlier, later in itertools.pairwise(moments)] == pytest.approx([70, 70])


@simulated(hold)
async def test_a_failure_of_the_provider_is_judged_like_a_real_one(sim: Simulation) -> None:
    by_call(ScriptedProvider(Answer({"error": {"code": "insufficient_quota"}}, status=429)))

    with pytest.raises(JobFailed) as caught:
        await (await order.submit(30)).result()

    assert caught.value.failure.error_class is ErrorClass.QUOTA_EXHAUSTED


@simulated(hold)
async def test_a_slow_answer_takes_its_time(sim: Simulation) -> None:
    by_call(ScriptedProvider(Answer("ok", after="3h")))
    began = sim.now

    await (await order.submit(30)).result()

    assert (sim.now - began).total_seconds() == 3 * 3600


async def test_a_crash_needs_a_worker_that_can_die() -> None:
    with pytest.raises(ConfigError, match="use it in a job of a simulation"):
        await ScriptedProvider(Crash())()


def test_a_plain_client_is_answered_at_once() -> None:
    provider = ScriptedProvider(503, LostAnswer(), {"id": 1})

    with httpx.Client(transport=provider.transport()) as client:
        assert client.post("https://bank.test/").status_code == 503
        with pytest.raises(httpx.ReadError):
            client.post("https://bank.test/")
        assert client.post("https://bank.test/").json() == {"id": 1}


@pytest.mark.parametrize("step", [Answer("ok", after="1s"), Hang()])
def test_a_plain_client_does_not_wait(step: Any) -> None:
    with (
        httpx.Client(transport=ScriptedProvider(step).transport()) as client,
        pytest.raises(ConfigError, match="async"),
    ):
        client.get("https://bank.test/")


@hold.job("plain")
def plain_order(amount: int) -> Any:
    return Bank.charge(amount)


def by_plain_client(provider: ScriptedProvider) -> None:
    def call(amount: int) -> Any:
        with httpx.Client(transport=provider.transport()) as client:
            answer = client.post("https://bank.test/charges", json={"amount": amount})
            answer.raise_for_status()
            return answer.json()

    Bank.charge = staticmethod(call)


@simulated(hold)
async def test_a_plain_job_sees_virtual_time_too(sim: Simulation) -> None:
    provider = ScriptedProvider(503, {"id": 1})
    by_plain_client(provider)

    await (await plain_order.submit(30)).result()

    first, second = provider.calls
    assert 60 <= second.at - first.at < 120


async def test_a_plain_job_can_be_run_inline() -> None:
    provider = ScriptedProvider(503, {"id": 1})
    by_plain_client(provider)

    with inline(hold):
        assert await (await plain_order.submit(30)).result() == {"id": 1}

    assert len(provider.effects) == 1


@simulated(hold)
async def test_a_crash_from_a_thread_is_refused(sim: Simulation) -> None:
    by_plain_client(ScriptedProvider(Crash()))

    with pytest.raises(JobFailed, match="call the provider from an async client"):
        await (await plain_order.submit(30)).result()


def test_providers_need_no_event_loop_to_be_made() -> None:
    made: list[ScriptedProvider] = []

    thread = threading.Thread(target=lambda: made.append(ScriptedProvider("ok")))
    thread.start()
    thread.join()

    assert asyncio.run(made[0]()) == "ok"


def test_a_worker_that_dies_after_an_effect_without_a_key_leads_to_a_second_one() -> None:
    provider = ScriptedProvider(Crash("first"), "second")

    async def call(amount: int) -> Any:
        return await provider(amount)

    Bank.charge = staticmethod(call)

    @simulated(hold)
    async def run() -> None:
        assert await (await order.submit(30)).result() == "second"

    run()

    assert len(provider.effects) == 2
