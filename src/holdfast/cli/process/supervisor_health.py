"""The health of several worker processes, which their parent reads from a socket of each."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from holdfast.cli.process.runner_health import STORE_TIMEOUT, no_metrics
from holdfast.telemetry.health_server import HealthResponse, Route, json_response

ABSENT = json_response(HTTPStatus.SERVICE_UNAVAILABLE, ready=False, why="the process is not running")
STUCK = json_response(HTTPStatus.SERVICE_UNAVAILABLE, ready=False, why="the process does not answer")


class ProcessesHealth:
    """The health of several worker processes, by name."""

    def __init__(self, sockets: Mapping[str, Path], *, timeout: float = STORE_TIMEOUT + 1) -> None:
        self._sockets = sockets
        self._timeout = timeout  # a process may itself wait for the store

    def routes(self) -> dict[str, Route]:
        """Return the routes by path."""
        return {"/live": self.live, "/ready": self.ready, "/metrics": self.metrics}

    async def live(self) -> HealthResponse:
        """Respond whether every running process answers; a process that is being replaced does not count."""
        answers = await self._ask_all("/live")
        stuck = [process for process, answer in answers.items() if answer is STUCK]
        if not stuck:
            return json_response(HTTPStatus.OK, live=True)
        return json_response(HTTPStatus.SERVICE_UNAVAILABLE, live=False, stuck=stuck)

    async def ready(self) -> HealthResponse:
        """Respond whether at least one process is ready, with the response of each."""
        answers = await self._ask_all("/ready")
        ready = any(answer.status is HTTPStatus.OK for answer in answers.values())
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        processes = {process: json.loads(answer.body) for process, answer in answers.items()}
        return json_response(status, ready=ready, processes=processes)

    async def metrics(self) -> HealthResponse:
        """Respond with the metrics of all processes that answer."""
        try:
            from holdfast.telemetry.prometheus import CONTENT_TYPE, merged  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            return await no_metrics()
        answers = await self._ask_all("/metrics")
        pages = {
            process: answer.body.decode()
            for process, answer in answers.items()
            if answer.status is HTTPStatus.OK
        }
        return HealthResponse(HTTPStatus.OK, merged(pages), CONTENT_TYPE)

    async def _ask_all(self, path: str) -> dict[str, HealthResponse]:
        """Request the health of all processes concurrently."""
        answers = await asyncio.gather(*[self._ask(socket, path) for socket in self._sockets.values()])
        return dict(zip(self._sockets, answers, strict=True))

    async def _ask(self, socket: Path, path: str) -> HealthResponse:
        try:
            async with asyncio.timeout(self._timeout):
                return _read(await _request(socket, path))
        except (FileNotFoundError, ConnectionError, ValueError):
            return ABSENT  # it has not started, or has ended, perhaps while it answered
        except (TimeoutError, OSError):
            return STUCK  # it listens and does not answer, or its backlog of connections is full


async def _request(socket: Path, path: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        return await reader.read()
    finally:
        writer.close()


def _read(answer: bytes) -> HealthResponse:
    """Parse a response. Raises `ValueError` if it is incomplete."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        raise ValueError("the response is incomplete")
    return HealthResponse(HTTPStatus(int(head.split(b" ", 2)[1])), body)
