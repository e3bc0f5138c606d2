"""The parent of several processes: it replaces those that end, passes signals on, and asks each for its health."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.cli.process.supervisor import ProcessSupervisor
from holdfast.cli.process.supervisor_health import ProcessesHealth
from holdfast.telemetry.health_server import HealthServer, json_response
from holdfast.telemetry.logs import StructuredLogger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from holdfast.telemetry.health_server import HealthResponse

TIMEOUT = 30.0


def a_process(code: str) -> list[str]:
    return [sys.executable, "-c", code]


UNTIL_STOPPED = a_process("import sys; sys.stdin.buffer.read(1)")
ENDS_AT_ONCE = a_process("raise SystemExit(1)")
FINDS_NO_WORDS = a_process("raise SystemExit(2)")


class AwaitableLogger(StructuredLogger):
    """A logger whose events can be waited for."""

    def __init__(self) -> None:
        super().__init__(level="ERROR")
        self._seen: Counter[str] = Counter()
        self._more = asyncio.Event()

    def info(self, event: str, **fields: Any) -> None:
        self._seen[event] += 1
        self._more.set()

    warning = info

    async def reach(self, times: int, event: str) -> None:
        """Wait until *event* was logged *times* times."""
        async with asyncio.timeout(TIMEOUT):
            while self._seen[event] < times:
                self._more.clear()
                await self._more.wait()


class Pauses:
    """Remembers for which try a pause was asked, and gives none."""

    def __init__(self) -> None:
        self.tries: list[int] = []

    def __call__(self, tries: int) -> float:
        self.tries.append(tries)
        return 0.0


def a_supervisor(
    logger: AwaitableLogger, command: Sequence[str], *, count: int, pause: Pauses
) -> ProcessSupervisor:
    sockets = {str(number): f"{number}.sock" for number in range(1, count + 1)}
    return ProcessSupervisor(sockets, logger, command=command, pause=pause)  # type: ignore[arg-type]  # these sockets are never asked


async def test_processes_that_were_stopped_are_not_replaced() -> None:
    logger, pauses = AwaitableLogger(), Pauses()
    supervisor = a_supervisor(logger, UNTIL_STOPPED, count=2, pause=pauses)
    running = asyncio.create_task(supervisor.run())
    await logger.reach(2, "process started")

    supervisor.forward_signal(signal.SIGTERM)

    assert await asyncio.wait_for(running, TIMEOUT) == 0
    assert pauses.tries == []


async def test_a_process_that_keeps_dying_is_replaced_after_longer_and_longer_pauses() -> None:
    logger, pauses = AwaitableLogger(), Pauses()
    supervisor = a_supervisor(logger, ENDS_AT_ONCE, count=1, pause=pauses)
    running = asyncio.create_task(supervisor.run())

    await logger.reach(4, "process started")
    supervisor.forward_signal(signal.SIGTERM)
    await asyncio.wait_for(running, TIMEOUT)

    assert pauses.tries[:3] == [1, 2, 3]


async def test_a_process_that_the_machine_has_no_room_for_is_tried_again() -> None:
    logger, pauses = AwaitableLogger(), Pauses()
    supervisor = a_supervisor(logger, ["/nowhere/python"], count=1, pause=pauses)
    running = asyncio.create_task(supervisor.run())

    await logger.reach(3, "process not started")
    supervisor.forward_signal(signal.SIGTERM)

    assert await asyncio.wait_for(running, TIMEOUT) == 0
    assert pauses.tries[:2] == [1, 2]


async def test_what_one_process_cannot_work_with_ends_all() -> None:
    logger = AwaitableLogger()
    supervisor = a_supervisor(logger, FINDS_NO_WORDS, count=3, pause=Pauses())

    assert await asyncio.wait_for(supervisor.run(), TIMEOUT) == 2


def answers(answer: HealthResponse) -> Mapping[str, Any]:
    async def same() -> HealthResponse:
        return answer

    return {"/live": same, "/ready": same}


@pytest.fixture
def sockets(tmp_path: Path) -> dict[str, Path]:
    """Three processes: one is up, one hangs, and of one nothing is there."""
    return {name: tmp_path / f"{name}.sock" for name in ("up", "hanging", "gone")}


@pytest.mark.clause("OBS-2")
async def test_a_process_that_hangs_makes_all_of_them_not_live(sockets: dict[str, Path]) -> None:
    server = HealthServer(answers(json_response(HTTPStatus.OK, live=True)), logger=AwaitableLogger())
    await server.open_at(sockets["up"])
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(sockets["hanging"]))
        hanging.listen()

        answer = await ProcessesHealth(sockets, timeout=0.3).live()

    await server.close()
    assert answer.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert json.loads(answer.body) == {"live": False, "stuck": ["hanging"]}


async def test_a_process_that_is_gone_is_no_reason_to_end_all(sockets: dict[str, Path]) -> None:
    server = HealthServer(answers(json_response(HTTPStatus.OK, live=True)), logger=AwaitableLogger())
    await server.open_at(sockets["up"])
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(sockets["hanging"]))  # its file is left behind, and no process listens

    answer = await ProcessesHealth(sockets).live()

    await server.close()
    assert json.loads(answer.body) == {"live": True}


async def test_one_process_that_takes_jobs_is_enough_to_be_ready(sockets: dict[str, Path]) -> None:
    server = HealthServer(answers(json_response(HTTPStatus.OK, ready=True)), logger=AwaitableLogger())
    await server.open_at(sockets["up"])

    answer = await ProcessesHealth(sockets).ready()

    await server.close()
    assert answer.status is HTTPStatus.OK
    assert json.loads(answer.body)["processes"] == {
        "up": {"ready": True},
        "hanging": {"ready": False, "why": "the process is not running"},
        "gone": {"ready": False, "why": "the process is not running"},
    }
