"""A terminal for tests that follow a page: commands go in, and what is shown comes out."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.pages import AS_A_PROJECT, Block, blocks, read

TIMEOUT = 60.0
SETTINGS = ("HOLDFAST_", "RETRY_", "WORKER_", "CIRCUIT_", "GATEWAY_", "DATABASE_URL")


class Shell:
    """One bash for a whole page, as a reader has one terminal: variables and jobs stay."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        programs = str(Path(sys.executable).parent)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=plain | {"PATH": f"{programs}:{os.environ['PATH']}"} | dict(settings or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._output = ""
        self._grown = threading.Condition()
        self._commands = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, commands: str) -> str:
        """Run *commands* and return what was shown meanwhile."""
        assert self._process.stdin is not None
        self._commands += 1
        end = f"-- end of command {self._commands} --"
        self.mark = len(self._output)
        self._process.stdin.write(f"{commands}\necho '{end}'\n")
        self._process.stdin.flush()
        self.wait_for(end)
        return self._output[self.mark :].partition(end)[0]

    def wait_for(self, text: str) -> str:
        """Wait until *text* is shown, and return what was shown since the last command began."""
        with self._grown:
            assert self._grown.wait_for(lambda: text in self._output[self.mark :], TIMEOUT), self._output
            return self._output[self.mark :]

    def close(self) -> None:
        """End the shell and what it started; both are in a session of their own."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(TIMEOUT)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._grown:
                self._output += line
                self._grown.notify_all()


def steps(page: Path) -> Iterator[Block | str]:
    """Yield the steps of *page* in order: blocks to run, and remarks that say what to wait for."""
    text = read(page)
    waits = {
        text.count("\n", 0, found.start()) + 1: found[1] for found in re.finditer("<!-- (wait .*?) -->", text)
    }
    for block in blocks(page):
        for line in [line for line in waits if line < block.line]:
            yield waits.pop(line)
        if not block.remark.startswith("not run: ") or block.remark.startswith(AS_A_PROJECT):
            yield block


def assert_shows(output: str, expected: str) -> None:
    """Compare line by line; widths of columns are ignored, and `…` matches anything."""
    place = 0
    for line in expected.splitlines():
        pattern = r"[ \t]+".join(re.escape(word).replace("…", r"[^\n]*") for word in line.split())
        found = re.compile(pattern).search(output, place)
        assert found is not None, f"{line!r} is not in:\n{output[place:]}"
        place = found.end()
