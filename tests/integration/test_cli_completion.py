"""`holdfast --install-completion` teaches a shell the commands and options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli_process import TIMEOUT


def script(*words: str, home: Path, **environment: str) -> str:
    """Run the installed script to its end: a completion is for its name. Give what it printed."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("holdfast")), *words],
        cwd=home,
        env={**os.environ, "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_and_installed(tmp_path: Path, shell: str) -> None:
    # The variable has typer take the shell as an argument, and not that of the parent process.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    shown = script("--show-completion", shell, home=tmp_path, **named)
    script("--install-completion", shell, home=tmp_path, **named)

    assert f"_HOLDFAST_COMPLETE=complete_{shell}" in shown
    installed = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*") if file.is_file()]
    assert any(f"_HOLDFAST_COMPLETE=complete_{shell}" in text for text in installed)


def test_a_shell_completes_the_name_of_a_command(tmp_path: Path) -> None:
    answer = script(
        home=tmp_path, _HOLDFAST_COMPLETE="complete_bash", COMP_WORDS="holdfast jo", COMP_CWORD="1"
    )

    assert answer.split() == ["jobs"]
