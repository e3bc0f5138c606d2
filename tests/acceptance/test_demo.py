"""`make demo`, run small: it keeps its promises, says so in plain lines, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.harness.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
WITHIN = 120.0
PLAIN = {"COLUMNS": "110", "TERM": "xterm", "FORCE_COLOR": "", "TTY_COMPATIBLE": "0"}


@pytest.fixture(autouse=True)
def heeded_interrupts() -> Iterator[None]:
    """Undo what a shell does to a command in the background: it ignores SIGINT, and its children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_demo_keeps_every_promise(tmp_path: Path) -> None:
    with demo("--jobs", "120", folder=tmp_path) as process:
        output, errors = process.communicate(timeout=WITHIN)

    assert (process.returncode, errors) == (0, ""), output
    assert rows_kept(output) == [
        "Every submitted job completes",
        "No job is lost or made up",
        "No effect takes place twice",
        "Results name what took place",
        "kill -9 costs time, not jobs",
        "Dead letters come back to work",
        "A canary goes before the others",
        "A replay goes on where it failed",
        "Dead letters keep secrets",
        "A finished stage stays finished",
        "The same key is the same job",
        "A stage has at most 8 attempts",
        "Retry-After is honoured",
        "Held jobs spend no attempt",
        "Other work goes on meanwhile",
        "The backlog goes out in a ramp",
    ]
    for fragment in (
        "submitted 200, completed 200",
        "lost 0",
        "duplicate effects 0 of 400",
        "worker kills survived 3",
        "dead letters repaired 3 of 3; with corrected input 1",
        "followed it 2, too early 0",
        "replayed 3, completed 3, finished stages run again 0",
        "secrets in dead letters 0, in log lines 0",
        "computed again 0",
        "submitted again 120, run again 0",
        "above budget 0",
        "too early 0",
        "attempts spent while open 0",
        "jobs beside 40, done while it was down 40",
        "opened again 0",
    ):
        assert fragment in output
    assert "BROKEN" not in output
    assert not [character for character in output if not character.isprintable() and character != "\n"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the children of a process")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_stopped_leaves_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    with demo("--jobs", "120", folder=tmp_path) as process:
        children = until(lambda: two_children_of(process.pid), within=30, what="provider and worker")
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)

    assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130), output
    assert errors == ""
    until(lambda: not any(map(is_running, children)), within=10, what="the end of provider and worker")
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


@contextmanager
def demo(*options: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the demo, with *folder* for its temporary files; it ends with the block at the latest."""
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", *options],
        cwd=ROOT,
        env={**os.environ, **PLAIN, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def rows_kept(output: str) -> list[str]:
    """The promises of those rows of the closing table that say that they were kept."""
    rows = [line for line in output.splitlines() if line.rstrip().endswith("  kept")]
    return [row.strip().partition("  ")[0] for row in rows]


def two_children_of(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children if len(children) == 2 else []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
