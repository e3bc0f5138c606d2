"""What systemd is notified of: only what the probes would say."""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast.cli.process.systemd import Systemd
from holdfast.telemetry.health_server import HealthResponse, json_response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD, BAD = HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE


class Probe:
    """Gives scripted answers, one after the other, and then never answers again."""

    def __init__(self, *statuses: HTTPStatus) -> None:
        self._statuses = list(statuses)
        self.spent = asyncio.Event()

    async def __call__(self) -> HealthResponse:
        if not self._statuses:
            self.spent.set()
            await asyncio.Event().wait()
        return json_response(self._statuses.pop(0))


@pytest.fixture(params=["in a folder", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/notify" if request.param == "in a folder" else f"@holdfast-{uuid4()}"


@pytest.fixture
def line(address: str) -> Iterator[socket.socket]:
    """The socket on which systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        line.setblocking(False)
        yield line


def received(line: socket.socket) -> list[str]:
    words = []
    while True:
        try:
            words.append(line.recv(256).decode())
        except BlockingIOError:
            return words


async def test_it_is_notified_of_readiness_once_and_of_life_as_often_as_there_is_any(
    address: str, line: socket.socket
) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30"})
    ready, live = Probe(BAD, GOOD), Probe(GOOD, BAD, BAD, GOOD, BAD)

    async with systemd.notifying(live=live, ready=ready), asyncio.timeout(20):
        await live.spent.wait()

    assert received(line) == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]


async def test_a_process_that_is_not_ready_says_nothing(address: str, line: socket.socket) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30"})
    ready, live = Probe(BAD), Probe(GOOD)

    async with systemd.notifying(live=live, ready=ready), asyncio.timeout(20):
        await ready.spent.wait()

    assert received(line) == []


async def test_a_notification_that_was_not_received_is_sent_again(tmp_path: Path) -> None:
    address = f"{tmp_path}/notify"
    systemd = Systemd({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30"})
    live, asked = Probe(), 0

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.setblocking(False)

        async def ready() -> HealthResponse:
            nonlocal asked
            asked += 1
            if asked == 2:
                line.bind(address)  # there was no listener before
            return json_response(GOOD)

        async with systemd.notifying(live=live, ready=ready), asyncio.timeout(20):
            await live.spent.wait()

        assert received(line) == ["READY=1"]


@pytest.mark.parametrize(
    "watchdog",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "30", "WATCHDOG_PID": "1"}],
    ids=["none", "never", "no number", "another's"],
)
async def test_without_a_watchdog_of_its_own_a_process_says_only_that_it_is_up(
    tmp_path: Path, watchdog: dict[str, str]
) -> None:
    address = f"{tmp_path}/notify"
    live = Probe()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(address)
        line.setblocking(False)
        async with Systemd({"NOTIFY_SOCKET": address, **watchdog}).notifying(live=live, ready=Probe(GOOD)):
            while not (words := received(line)):
                await asyncio.sleep(0)

    assert words == ["READY=1"]
    assert not live.spent.is_set()


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "30"}, {"NOTIFY_SOCKET": ""}], ids=["nothing", "no socket", "empty"]
)
async def test_without_systemd_no_probe_is_asked(environment: dict[str, str]) -> None:
    never = Probe()

    async with Systemd(environment).notifying(live=never, ready=never):
        await asyncio.sleep(0)

    assert not never.spent.is_set()
