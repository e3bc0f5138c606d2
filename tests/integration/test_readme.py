"""The code in the README runs as it stands."""

import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT, blocks

README = ROOT / "README.md"
TIMEOUT = 60


def run(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script.name],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def test_the_example_fails_once_is_retried_and_prints_what_the_page_says(tmp_path: Path) -> None:
    [block] = [block for block in blocks(README) if block.language == "python"]
    [printed] = [block.text for block in blocks(README) if block.language == "text"]
    script = tmp_path / "example.py"
    script.write_text(block.text, encoding="utf-8")

    done = run(script)

    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert done.stderr.count('"event": "job retry scheduled"') == 1


def test_the_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    [commands] = [block.text for block in blocks(README) if block.text.startswith("make ")]
    targets = [line.split()[1] for line in commands.splitlines()]

    assert targets == ["demo", "test"]
    assert all(any(line.startswith(f"{target}:") for line in makefile) for target in targets)
