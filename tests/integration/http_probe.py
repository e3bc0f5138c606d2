"""Asks a health port, as a probe or Prometheus would."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import httpx

from tests.integration.cli_process import TIMEOUT

if TYPE_CHECKING:
    from tests.integration.cli_process import Running


class Health:
    """The health port of a worker, which said where it is before it started."""

    def __init__(self, worker: Running) -> None:
        [(host, port)] = re.findall(r'"host": "([^"]+)", "port": (\d+)', worker.output)
        self.host, self.port = host, int(port)
        self._client = httpx.Client(base_url=f"http://{host}:{port}", timeout=TIMEOUT)

    def ask(self, path: str, *, timeout: float = TIMEOUT) -> tuple[int, Any]:
        """Give the status and the JSON that is answered."""
        answer = self._client.get(path, timeout=timeout)
        return answer.status_code, answer.json()

    def until(self, status: int, path: str = "/ready") -> Any:
        """Ask until the answer has this status: for changes that are not announced."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            found, answer = self.ask(path)
            if found == status:
                return answer
        raise AssertionError(f"{path} did not answer {status}, but {answer}")

    def samples_with(self, name: str, value: float) -> dict[str, float]:
        """Read the metrics once one of them has this value: a job is counted a moment after it was stored."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            samples = self.samples()
            if samples.get(name) == value:
                return samples
        raise AssertionError(f"{name} is not {value}, but {samples.get(name)}")

    def samples(self) -> dict[str, float]:
        """Read the metrics: each series as it is written, and its value."""
        text = self._client.get("/metrics").text
        return {
            name: float(value) for name, value in re.findall(r"^(holdfast_\S+) (\S+)$", text, re.MULTILINE)
        }
