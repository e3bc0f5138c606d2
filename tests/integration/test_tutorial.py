"""The tutorial works as written: its files, its commands, what they show, and the crash in the middle."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import DOCS, Block, blocks, read

TUTORIAL = DOCS / "tutorial/first-job.md"
PATIENCE = 60.0
SETTINGS = ("RETRY_", "WORKER_", "LOG_", "DATABASE_URL")


class Shell:
    """One bash for the whole tutorial, as a reader has one terminal: variables and jobs stay."""

    def __init__(self, folder: Path) -> None:
        programs = str(Path(sys.executable).parent)
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
            | {"PATH": f"{programs}:{os.environ['PATH']}"},
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
            assert self._grown.wait_for(lambda: text in self._output[self.mark :], PATIENCE), self._output
            return self._output[self.mark :]

    def close(self) -> None:
        """End the shell and what it started; both are in a session of their own."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(PATIENCE)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._grown:
                self._output += line
                self._grown.notify_all()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.close()


def test_the_tutorial_works_as_written(shell: Shell, tmp_path: Path) -> None:
    shown, seen = "", []
    for part in parts():
        match part:
            case Block(title=str(title)):
                (tmp_path / title).write_text(part.text, encoding="utf-8")
            case Block(language="sh"):
                shown = shell.run(part.text)
            case Block(language="text"):
                assert_shows(shown, part.text)
            case str() if part.startswith("wait for: "):
                seen.append(shell.wait_for(part.removeprefix("wait for: ")))
            case str() if part.startswith("wait until: "):
                wait_until(shell, part.removeprefix("wait until: "))
            case _:
                raise AssertionError(part)

    before_the_crash, after_it = seen
    assert "fetching page-1" in before_the_crash
    assert "fetching page-1" not in after_it
    assert shell.run("python submit.py page-1; echo $job").split().count(shell.run("echo $job").strip()) == 2


def parts() -> Iterator[Block | str]:
    """Yield what the tutorial tells to do, in order; remarks say what to wait for."""
    text = read(TUTORIAL)
    waits = {
        text.count("\n", 0, found.start()) + 1: found[1] for found in re.finditer("<!-- (wait .*?) -->", text)
    }
    for block in blocks(TUTORIAL):
        for line in [line for line in waits if line < block.line]:
            yield waits.pop(line)
        if not block.remark.startswith("not run: "):
            yield block


def assert_shows(output: str, expected: str) -> None:
    """Compare line by line; widths are the terminal's business, and `…` stands for anything."""
    place = 0
    for line in expected.splitlines():
        pattern = r"[ \t]+".join(re.escape(word).replace("…", r"[^\n]*") for word in line.split())
        found = re.compile(pattern).search(output, place)
        assert found is not None, f"{line!r} is not in:\n{output[place:]}"
        place = found.end()


def wait_until(shell: Shell, status: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while f"\t{status}\t" not in shell.run(f"holdfast jobs list --app app:hold --status {status}"):
        assert time.monotonic() < deadline, f"no job became {status}"
