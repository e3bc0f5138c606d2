"""`holdfast relay` as a process: it publishes messages and runs no jobs, and stops as a worker does."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Status
from holdfast.core.messages.outbox import MessageStatus, NewMessage
from holdfast.wiring.system import SystemIds
from tests.integration.cli_process import (
    APPLICATION,
    a_process,
    an_application,
    apply_schema,
    holdfast,
    read,
    submit,
)
from tests.integration.http_probe import Health

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.cli_process import Running
    from tests.servers import Prepare

PUBLISHING = (
    APPLICATION
    + """
from pydantic import BaseModel


async def receive(message):
    print(f"received {message.id}", flush=True)
    while message.id == "slow" and not (HERE / "go").exists():
        await asyncio.sleep(0.01)


hold.broker("local", receive)


@hold.message("graded", aggregate_type="Submission")
class Graded(BaseModel): ...
"""
)


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


@pytest.fixture
def publishing(tmp_path: Path) -> Path:
    """A folder with an application that publishes to a function."""
    return an_application(tmp_path, PUBLISHING)


@contextmanager
def a_relay(*words: str, cwd: Path, url: str) -> Iterator[Running]:
    """Run `holdfast relay` while the block runs; it has begun when the block begins."""
    with a_process("relay", "app:hold", *words, cwd=cwd, settings={"DATABASE_URL": url}) as running:
        running.wait_for("relay started")
        yield running


async def publish(url: str, message_id: str) -> str:
    """Store a message of `PUBLISHING` from this process; return its id in the outbox."""
    message = NewMessage(SystemIds().job_id(), "Submission", "sub", "graded", "{}", message_id=message_id)
    async with Holdfast(url) as hold:
        await hold.runtime.store.outbox.add([message])
    return message.id


async def status_of(url: str, outbox_id: str) -> MessageStatus:
    async with Holdfast(url) as hold:
        return (await hold.runtime.store.outbox.get(outbox_id)).status


async def test_a_relay_publishes_messages_and_runs_no_jobs(url: str, publishing: Path) -> None:
    job_id = await submit(url, "sum", 1)

    with a_relay(cwd=publishing, url=url) as relay:
        outbox_id = await publish(url, "m1")
        relay.wait_for("received m1")
        relay.signal(signal.SIGTERM)
        code = relay.end()

    assert code == 0
    assert await status_of(url, outbox_id) is MessageStatus.PUBLISHED
    assert (await read(url, job_id)).status is Status.QUEUED
    events = [json.loads(line)["event"] for line in relay.output.splitlines() if line.startswith("{")]
    assert events == ["relay started", "relay stopping", "relay stopped"]


async def test_a_message_that_is_confirmed_within_the_grace_time_is_marked_after_sigterm(
    url: str, publishing: Path
) -> None:
    with a_relay("--grace", "30s", cwd=publishing, url=url) as relay:
        outbox_id = await publish(url, "slow")
        relay.wait_for("received slow")
        relay.signal(signal.SIGTERM)
        relay.wait_for("relay stopping")
        (publishing / "go").touch()
        code = relay.end()

    assert code == 0
    assert await status_of(url, outbox_id) is MessageStatus.PUBLISHED


async def test_a_second_signal_does_not_wait_and_the_next_relay_publishes_the_message_again(
    url: str, publishing: Path
) -> None:
    with a_relay("--grace", "1h", cwd=publishing, url=url) as relay:
        outbox_id = await publish(url, "slow")
        relay.wait_for("received slow")
        relay.signal(signal.SIGTERM)
        relay.wait_for("relay stopping")
        relay.signal(signal.SIGTERM)
        code = relay.end()
    assert code == 0
    assert await status_of(url, outbox_id) is MessageStatus.PENDING

    (publishing / "go").touch()
    with a_relay(cwd=publishing, url=url) as relay:
        relay.wait_for("received slow")
        relay.signal(signal.SIGTERM)
        relay.end()

    assert await status_of(url, outbox_id) is MessageStatus.PUBLISHED


async def test_a_relay_reports_its_health_and_the_state_of_the_outbox(url: str, publishing: Path) -> None:
    with a_relay("--health-port", "0", cwd=publishing, url=url) as relay:
        health = Health(relay)
        ready = health.until(200)
        await publish(url, "m1")
        relay.wait_for("received m1")
        samples = health.samples_with("holdfast_messages_published_total", 1)

    assert ready["ready"] is True
    assert ready["relay"] in relay.output
    assert {
        'holdfast_outbox_depth{state="held"}',
        "holdfast_outbox_lag_seconds",
        "holdfast_outbox_blocked_routes",
    } <= samples.keys()


async def test_relays_in_several_processes_share_one_command(url: str, publishing: Path) -> None:
    words = ("relay", "app:hold", "--processes", "2")
    with a_process(*words, cwd=publishing, settings={"DATABASE_URL": url}) as relays:
        for _ in range(2):
            relays.wait_for("relay started")
        await publish(url, "m1")
        relays.wait_for("received m1")
        relays.signal(signal.SIGTERM)
        code = relays.end()

    assert code == 0


def test_an_application_without_a_broker_is_refused_in_one_line(url: str, tmp_path: Path) -> None:
    done = holdfast("relay", "app:hold", cwd=an_application(tmp_path), settings={"DATABASE_URL": url})

    assert done.returncode == 2
    assert done.stderr == (
        "holdfast: the application declares no broker, so there is nothing to publish to; declare one with "
        "hold.broker(...)\n"
    )
