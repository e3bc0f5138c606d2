"""The guide to the repair of failed jobs works as written: each command on a terminal, and what it shows."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import DOCS, blocks

PAGE = DOCS / "guides/repair-a-failed-job.md"
TIMEOUT = 180
WIDTH = 110
SETTINGS = ("HOLDFAST_", "RETRY_", "WORKER_", "DATABASE_URL")
OF_A_TERMINAL = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
"""What would be believed before the terminal itself."""

UNTIL_MORNING = """
import asyncio
from app import hold

async def main():
    async with hold:
        for job in await hold.find():
            await hold.wait(job.id)

asyncio.run(main())
"""

ID = re.compile("[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
VARIES = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z|\(?\d+[hms]\w*|[0-9a-f]{16}|─+")
"""What is another one each time: an instant, a length of time, a keyed hash, the width of a table."""
MARKS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Operator:
    """Types the commands of the page; the ids that it names are those that were shown in their place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(SETTINGS + OF_A_TERMINAL)
        }
        programs = f"{Path(sys.executable).parent}:{plain['PATH']}"
        store = {"DATABASE_URL": "sqlite:///jobs.db", "HOLDFAST_LOG_LEVEL": "ERROR"}
        self.settings = plain | store | {"PATH": programs, "TERM": "xterm"}
        self._ids: dict[str, str] = {}

    def run(self, *words: str) -> None:
        """Run a program to its end, which must be a good one."""
        subprocess.run(words, cwd=self.folder, env=self.settings, check=True, timeout=TIMEOUT)

    def follow(self, transcript: str) -> None:
        """Type each command of *transcript*, and look whether it shows what stands below it."""
        for part in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            self._see(self.shown(command), expected)

    def shown(self, command: str) -> str:
        """Type *command*, and give what it shows on a terminal."""
        mine, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
        named = ID.sub(lambda found: self._ids[found[0]], command)
        process = subprocess.Popen(
            ["bash", "-c", named],
            cwd=self.folder,
            env=self.settings,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        with open(mine, "rb", buffering=0) as screen:
            shown = b"".join(_until_hung_up(screen.fileno()))
        process.wait(TIMEOUT)
        return MARKS.sub("", shown.decode())

    def _see(self, shown: str, expected: str) -> None:
        place = 0
        for line in expected.splitlines():
            found = re.compile(self._pattern(line)).search(shown, place)
            assert found is not None, f"{line!r} is not in:\n{shown[place:]}"
            self._ids |= dict(zip(_unknown(line, self._ids), found.groups(), strict=True))
            place = found.end()

    def _pattern(self, line: str) -> str:
        return r"[ \t]+".join(map(self._word, line.split()))

    def _word(self, word: str) -> str:
        if ID.match(word):
            job_id, stop = word[:36], re.escape(word[36:])
            return (re.escape(self._ids[job_id]) if job_id in self._ids else f"({ID.pattern})") + stop
        if VARIES.match(word):
            return r"\S+"
        return re.escape(word).replace("…", r"[^\n]*")


def _unknown(line: str, known: dict[str, str]) -> list[str]:
    return [found for found in ID.findall(line) if found not in known]


def _until_hung_up(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            shown = os.read(terminal, 65536)
        except OSError:  # Linux says so when the last process has closed it
            return
        if not shown:
            return
        yield shown


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """Give an operator on the morning after: three jobs have failed, and a worker runs."""
    for file in (block for block in blocks(PAGE) if block.title is not None):
        (tmp_path / str(file.title)).write_text(file.text, encoding="utf-8")
    found = Operator(tmp_path)
    found.run(sys.executable, "night.py")
    worker = subprocess.Popen(["holdfast", "worker", "app:hold"], cwd=tmp_path, env=found.settings)
    try:
        found.run(sys.executable, "-c", UNTIL_MORNING)
        yield found
    finally:
        worker.terminate()
        worker.wait(TIMEOUT)


def test_the_guide_to_a_repair_works_as_written_and_leaves_nothing_open(operator: Operator) -> None:
    transcripts = [block.text for block in blocks(PAGE) if block.language == "console"]

    for transcript in transcripts:
        operator.follow(transcript)

    assert len(transcripts) > 5
    letters = operator.shown("holdfast dead list | cut -f 8").split()
    assert letters == ["closed"] * 3
