"""`holdfast providers`: real commands beside a real worker, and a service that fails until a file says that it is up."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Status
from tests.integration.cli_process import a_worker, an_application, apply_schema, holdfast, read, submit, wait

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Prepare

CALLING = """
import asyncio
from pathlib import Path

from holdfast import Backoff, Breaker, Holdfast

HERE = Path(__file__).parent
hold = Holdfast(backoff=Backoff.none())
spare = hold.provider("spare")
llm = hold.provider("llm", breaker=Breaker(window=2, minimum=2, trials=1, cooldown="1h"), concurrency=4, rate="50/s")
speech = hold.provider("speech", backup=spare)


@hold.stage(provider=llm)
async def ask() -> str:
    if not (HERE / "up").exists():
        raise ConnectionRefusedError
    while (HERE / "slow").exists():
        await asyncio.sleep(0.01)
    return "answered"


@hold.job("asking", attempts=3)
async def asking() -> str:
    return await ask()
"""


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an application in it that calls a provider."""
    return an_application(tmp_path, CALLING)


async def test_a_paused_provider_is_listed_with_who_paused_it_and_holds_its_jobs_until_it_is_resumed(
    url: str, folder: Path
) -> None:
    settings = {"DATABASE_URL": url}
    (folder / "up").touch()
    await apply_schema(url)
    why = ("--actor", "ada", "--reason", "the bill is not paid")

    paused = holdfast("providers", "pause", "llm", *why, "--app", "app:hold", cwd=folder, settings=settings)
    with a_worker(cwd=folder, settings=settings) as worker:
        job_id = await submit(url, "asking")
        worker.wait_for('"event": "job held"')
        people = holdfast("providers", "list", "--app", "app:hold", cwd=folder, settings=settings)
        machine = holdfast("providers", "list", "--json", cwd=folder, settings=settings)
        held = (await read(url, job_id)).held_by
        resumed = holdfast("providers", "resume", "llm", "--actor", "bob", cwd=folder, settings=settings)
        ended = await wait(url, job_id)

    assert paused.stdout == "llm\tpaused: its jobs are held until it is resumed\n"
    llm, spare, speech = (line.split("\t") for line in people.stdout.splitlines())
    assert (llm[:2], llm[4], llm[6:]) == (["llm", "paused"], "1", ["ada", "the bill is not paid"])
    assert spare[0] == "spare"
    assert speech == ["speech", "closed", "-", "-", "0", "-", "-", "-"]
    [listed] = [each for each in json.loads(machine.stdout) if each["name"] == "llm"]
    assert (listed["state"], listed["declared"], listed["held"]) == ("paused", False, 1)
    assert abs(datetime.fromisoformat(listed["since"]) - datetime.now(UTC)) < timedelta(minutes=5)
    assert held == "llm"
    assert resumed.stdout.startswith("llm\tresumed: its breaker decides again, and is ")
    assert (ended.status, ended.result, ended.last_attempt) == (Status.COMPLETED, '"answered"', 1)
    assert [done.stderr for done in (paused, people, machine, resumed)] == [""] * 4


async def test_a_broken_provider_is_shown_with_why_it_opened_and_a_probe_brings_it_back(
    url: str, folder: Path
) -> None:
    settings = {"DATABASE_URL": url}
    await apply_schema(url)

    with a_worker(cwd=folder, settings=settings) as worker:
        job_id = await submit(url, "asking")
        worker.wait_for("provider opened")
        worker.wait_for('"event": "job held"')
        people = holdfast("providers", "show", "llm", "--app", "app:hold", cwd=folder, settings=settings)
        machine = holdfast("providers", "show", "llm", "--json", cwd=folder, settings=settings)
        (
            folder / "slow"
        ).touch()  # the command shows the state after its request: the trial must not end before
        (folder / "up").touch()
        probed = holdfast("providers", "probe", "llm", "--actor", "ada", cwd=folder, settings=settings)
        (folder / "slow").unlink()
        ended = await wait(url, job_id)

    fields = dict(line.split("\t", 1) for line in people.stdout.split("\n\n")[0].splitlines())
    assert (fields["state"], fields["failures"], fields["held"]) == ("open", "2 of 2 calls", "1")
    assert (fields["concurrency"], fields["rate"]) == ("4", "50/s")
    assert "held jobs\nllm\t1\n" in people.stdout
    assert people.stdout.splitlines()[-1].endswith("opened\t2 of 2 calls failed; trials after 1h")
    shown = json.loads(machine.stdout)
    assert (shown["state"], shown["held_by"], shown["declaration"]) == ("open", {"llm": 1}, None)
    [opened] = shown["events"]
    assert (opened["kind"], opened["meta"]["failed"]) == ("opened", 2)
    assert probed.stdout == "llm\topen: one job is let through as a trial\n"
    assert ended.status is Status.COMPLETED
    assert ended.last_attempt == 3  # two failed before it opened, and the trial is the third


@pytest.mark.parametrize(
    ("override", "detail", "state"),
    [
        ("open", "forced open: spare is called instead until it is resumed", "forced open"),
        ("close", "forced closed: every call is made until it is resumed", "forced closed"),
        ("observe", "observed: every call is made until it is resumed", "observed"),
    ],
    ids=["open", "close", "observe"],
)
async def test_an_override_is_set_for_all_workers_and_says_what_it_means(
    tmp_path: Path, override: str, detail: str, state: str
) -> None:
    url, folder = f"sqlite:///{tmp_path}/jobs.db", an_application(tmp_path, CALLING)
    await apply_schema(url)
    words = ("providers", override, "speech", "--actor", "ada", "--app", "app:hold", "--json")

    done = holdfast(*words, cwd=folder, settings={"DATABASE_URL": url})

    assert json.loads(done.stdout) == {"provider": "speech", "state": state, "detail": detail}
    async with Holdfast(url) as hold:
        assert (await hold.providers.show("speech")).state == state
        [event] = await hold.providers.events("speech")
    assert event.meta == {"order": state, "actor": "ada", "reason": ""}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("show", "absent"), 2, "there is no provider 'absent'; known are: llm, spare, speech"),
        (("resume", "llm", "--actor", "ada"), 1, "provider 'llm' has no override to clear"),
        (("probe", "llm", "--actor", "ada"), 1, "provider 'llm' lets calls through already"),
    ],
    ids=["unknown", "nothing to resume", "nothing to probe"],
)
async def test_what_cannot_be_is_said_in_one_line(
    tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    url, folder = f"sqlite:///{tmp_path}/jobs.db", an_application(tmp_path, CALLING)
    await apply_schema(url)

    done = holdfast("providers", *words, "--app", "app:hold", cwd=folder, settings={"DATABASE_URL": url})

    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert done.stdout == ""
