"""What a declaration refuses, and what it takes for the same thing declared again."""

import asyncio
import importlib
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Backoff, Holdfast, JobFunction
from holdfast.errors import ConfigError, PayloadInvalid, PayloadTooLarge
from holdfast.testing import inline
from holdfast.types import StageFunction

MODULES = {
    "shared_hold": "from holdfast import Holdfast\nhold = Holdfast('sqlite:///never-opened.db')\n",
    "mailmod": "from shared_hold import hold\n@hold.stage()\nasync def send(to: str) -> str: return f'mail {to}'\n",
    "smsmod": "from shared_hold import hold\n@hold.stage()\nasync def send(to: str) -> str: return f'sms {to}'\n",
}


@pytest.fixture
def hold() -> Holdfast:
    return Holdfast("sqlite:///never-opened.db")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two modules of one application, each with a stage that is called `send`."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("modules")
def test_a_stage_of_another_module_cannot_take_a_name() -> None:
    importlib.import_module("mailmod")

    with pytest.raises(ConfigError, match=r"'send' is declared twice, by mailmod\.send and by smsmod\.send"):
        importlib.import_module("smsmod")


@pytest.mark.usefixtures("modules")
def test_a_module_with_stages_can_be_reloaded() -> None:
    module = importlib.import_module("mailmod")

    importlib.reload(module)

    assert module.send.spec is importlib.import_module("shared_hold").hold.runtime.registry.stages["send"]


def test_two_functions_of_one_module_cannot_share_a_name(hold: Holdfast) -> None:
    @hold.stage("send")
    async def by_mail() -> None: ...

    async def by_sms() -> None: ...

    with pytest.raises(ConfigError, match="a stage named 'send' is declared twice"):
        hold.stage("send")(by_sms)


def test_a_stage_declared_in_a_function_that_runs_often_is_one_stage(hold: Holdfast) -> None:
    def declared() -> StageFunction[..., Any]:
        @hold.stage()
        async def fetch() -> None: ...

        return fetch

    assert [declared().spec.name for _ in range(3)] == ["fetch"] * 3


async def test_decorators_need_no_parentheses(hold: Holdfast) -> None:
    @hold.stage
    async def double(n: int) -> int:
        return 2 * n

    @hold.job
    async def grade(n: int) -> int:
        return await double(n) + 1

    @hold.job
    def plain(n: int) -> int:
        return n

    assert isinstance(double, StageFunction)
    assert (grade.name, plain.name, await grade(2), plain(2)) == ("grade", "plain", 5, 2)


@pytest.fixture
def greet(hold: Holdfast) -> JobFunction[[str], str]:
    @hold.job
    async def greet(name: str) -> str:
        return f"hello {name}"

    return greet


@pytest.mark.parametrize(
    "call", ["ab", b"ab", {"name": "ab"}, {"ab"}, 5, iter(["ab"])], ids=lambda call: type(call).__name__
)
async def test_a_call_of_submit_many_is_no_text_and_no_mapping(
    greet: JobFunction[[str], str], call: Any
) -> None:
    with pytest.raises(PayloadInvalid, match=r"item 1 of submit_many: a call must be a tuple or list"):
        await greet.submit_many([("Ada",), call])


async def test_an_error_of_submit_many_names_the_item(greet: JobFunction[[str], str]) -> None:
    with pytest.raises(PayloadInvalid, match="item 2 of submit_many: job 'greet': too many"):
        await greet.submit_many([("Ada",), ["Bob"], ("Eve", "Mallory")])

    with pytest.raises(PayloadInvalid, match="item 0 of submit_many"):
        await asyncio.to_thread(greet.submit_many_sync, [(5,)])

    with pytest.raises(PayloadTooLarge, match="item 1 of submit_many"):
        await greet.submit_many([("Ada",), ("a" * 2_000_000,)])


async def test_every_sequence_of_arguments_is_a_call(hold: Holdfast) -> None:
    @hold.job
    async def add(a: int, b: int) -> int:
        return a + b

    with inline(hold):
        jobs = await add.submit_many([(1, 2), [3, 4], range(5, 7)])

        assert [await job.result() for job in jobs] == [3, 7, 11]


def test_a_longest_wait_is_declared_with_a_job_a_stage_or_a_provider(hold: Holdfast) -> None:
    hour, half = timedelta(hours=1), Backoff.constant("30m")

    @hold.job("report", max_wait="1h", backoff=half)
    async def report() -> None: ...

    @hold.stage("ask", max_wait=3600, backoff=half)
    async def ask() -> None: ...

    model = hold.provider("model", max_wait=hour)

    registry = hold.runtime.registry
    declared = registry.get("report")
    assert declared is not None
    assert (declared.policy.max_wait, declared.policy.backoff) == (hour, half)
    assert (registry.stages["ask"].policy.max_wait, registry.stages["ask"].policy.backoff) == (hour, half)
    assert model.spec.breaker.max_wait == hour


@pytest.mark.parametrize("max_wait", [None, "29m"])
def test_a_backoff_that_waits_longer_than_its_job_or_stage_allows_is_refused(
    hold: Holdfast, max_wait: str | None
) -> None:
    for declare in (hold.job, hold.stage):
        with pytest.raises(
            ConfigError, match=r"waits up to 1800 s, which is more than .*; allow it with max_wait="
        ):
            declare("slow", backoff=Backoff.constant("30m"), max_wait=max_wait)(lambda: None)


@pytest.mark.parametrize("max_wait", ["299s", "366d", "soon"])
def test_a_longest_wait_that_cannot_be_is_refused(hold: Holdfast, max_wait: str) -> None:
    refusals = r"max_wait= raises the limit of 300 s|Not a duration"

    for declare in (hold.job, hold.stage):
        with pytest.raises(ConfigError, match=refusals):
            declare("slow", max_wait=max_wait)(lambda: None)
    with pytest.raises(ConfigError, match=refusals):
        hold.provider("model", max_wait=max_wait)
