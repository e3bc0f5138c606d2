"""What several worker processes tell together: their parent asks each of them at a socket of its own."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from holdfast.cli.health import PATIENCE, no_metrics
from holdfast.telemetry.probes import Answer, Route, told

ABSENT = told(HTTPStatus.SERVICE_UNAVAILABLE, ready=False, why="the process is not up")
STUCK = told(HTTPStatus.SERVICE_UNAVAILABLE, ready=False, why="the process does not answer")


class ProcessesHealth:
    """How several worker processes fare, each under its name."""

    def __init__(self, sockets: Mapping[str, Path], *, patience: float = PATIENCE + 1) -> None:
        self._sockets = sockets
        self._patience = patience  # a process may itself have to wait for the store

    def routes(self) -> dict[str, Route]:
        """Give the paths, and what is answered there."""
        return {"/live": self.live, "/ready": self.ready, "/metrics": self.metrics}

    async def live(self) -> Answer:
        """Say whether every process that is up answers; one that is not up is replaced, and no reason to end all."""
        answers = await self._asked("/live")
        stuck = [process for process, answer in answers.items() if answer is STUCK]
        if not stuck:
            return told(HTTPStatus.OK, live=True)
        return told(HTTPStatus.SERVICE_UNAVAILABLE, live=False, stuck=stuck)

    async def ready(self) -> Answer:
        """Say whether at least one process takes jobs, and what each of them says."""
        answers = await self._asked("/ready")
        ready = any(answer.status is HTTPStatus.OK for answer in answers.values())
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        processes = {process: json.loads(answer.body) for process, answer in answers.items()}
        return told(status, ready=ready, processes=processes)

    async def metrics(self) -> Answer:
        """Give the figures of all processes that answer."""
        try:
            from holdfast.telemetry.prometheus import CONTENT_TYPE, merged  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            return await no_metrics()
        answers = await self._asked("/metrics")
        pages = {
            process: answer.body.decode()
            for process, answer in answers.items()
            if answer.status is HTTPStatus.OK
        }
        return Answer(HTTPStatus.OK, merged(pages), CONTENT_TYPE)

    async def _asked(self, path: str) -> dict[str, Answer]:
        """Ask all processes at once."""
        answers = await asyncio.gather(*[self._ask(socket, path) for socket in self._sockets.values()])
        return dict(zip(self._sockets, answers, strict=True))

    async def _ask(self, socket: Path, path: str) -> Answer:
        try:
            async with asyncio.timeout(self._patience):
                return _read(await _sent(socket, path))
        except (FileNotFoundError, ConnectionError, ValueError):
            return ABSENT  # it has not come so far, or has ended, perhaps in the middle of its answer
        except (TimeoutError, OSError):
            return STUCK  # it listens and says nothing; after many such questions its queue for them is full


async def _sent(socket: Path, path: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        return await reader.read()
    finally:
        writer.close()


def _read(answer: bytes) -> Answer:
    """Take an answer apart. Raises `ValueError` if it broke off."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        raise ValueError("the answer broke off")
    return Answer(HTTPStatus(int(head.split(b" ", 2)[1])), body)
