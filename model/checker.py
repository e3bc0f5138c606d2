"""Runs SPIN: writes a variant out, has its checker made and compiled, and reads what that says.

The search is exhaustive: each state is stored in full, and none is left out by a reduction. Bad states are looked for
breadth first, so the story of a counter-example is a shortest one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from model.variants import Promise, Variant, Verdict
from tools.debian import install

MODEL = Path(__file__).with_name("leases.pml")
PACKAGES = ("spin", "gcc", "libc6-dev")
TIMEOUT_SECONDS = 600

FOR_BAD_STATES = ("-DSAFETY", "-DBFS")
FOR_ENDLESS_RUNS = ("-DNFAIR=4",)
"""Room for the processes among which the search is fair."""

_ERRORS = re.compile(r"errors: (\d+)")
_STATES = re.compile(r"^\s*(\d+) states, stored", re.MULTILINE)
_STORY = re.compile(r"^(?:worker|database|provider|person)\b.*|^<<<<<START OF CYCLE>>>>>", re.MULTILINE)


class CheckerFailedError(Exception):
    """SPIN or the compiler did not do its work; the message is what it said."""


@dataclass(frozen=True)
class Outcome:
    """What a search found: how many states there were, and the story of the one that breaks the promise."""

    variant: Variant
    verdict: Verdict
    states: int
    story: tuple[str, ...]

    @property
    def as_expected(self) -> bool:
        """Whether the model says what we say about it."""
        return self.verdict is self.variant.expected


def get_ready() -> None:
    """Install what is missing, where permitted. Raises `NotInstalledError` where it is not."""
    if not (_is_spin(shutil.which("spin")) and shutil.which("gcc")):
        install(*PACKAGES)


def check(variant: Variant) -> Outcome:
    """Visit every state of *variant*, or find one that breaks its promise."""
    endless = variant.is_about_endless_runs
    with tempfile.TemporaryDirectory(prefix="holdfast-model-") as name:
        folder = Path(name)
        (folder / "variant.pml").write_text(source_of(variant), encoding="utf-8")
        _run(folder, "spin", "-a", "variant.pml")
        _compile(folder, variant)
        said = _run(folder, "./pan", "-m100000", *(("-a", "-f") if endless else ()))
        return Outcome(variant, *read(said, endless=endless), story=_story_in(folder))


def source_of(variant: Variant) -> str:
    """Return the model with the definitions of *variant* above it."""
    checked = "|".join(promise.name for promise in variant.promises if promise is not Promise.ENDS) or "0"
    definitions = [*variant.world, f"CHECK ({checked})"]
    if variant.is_about_endless_runs:
        definitions.append("LIVENESS")
    above = "".join(f"#define {definition}\n" for definition in definitions)
    return above + MODEL.read_text(encoding="utf-8")


def read(said: str, *, endless: bool) -> tuple[Verdict, int]:
    """Read verdict and number of states from a checker's words. Raises `CheckerFailedError` if it broke off."""
    errors, states = _ERRORS.search(said), _STATES.search(said)
    if errors is None or states is None:
        raise CheckerFailedError(said)
    if errors[1] == "0":
        if "not completed" in said or "too small" in said:
            raise CheckerFailedError(said)
        return Verdict.HOLDS, int(states[1])
    if ("acceptance cycle" if endless else "assertion violated") not in said:
        raise CheckerFailedError(said)
    return Verdict.BROKEN, int(states[1])


def _compile(folder: Path, variant: Variant) -> None:
    search = FOR_ENDLESS_RUNS if variant.is_about_endless_runs else FOR_BAD_STATES
    speed = "-O1" if variant.expected is Verdict.HOLDS else "-O0"  # a short search is not worth optimising
    _run(folder, "gcc", speed, "-w", "-DNOREDUCE", *search, "-o", "pan", "pan.c")


def _story_in(folder: Path) -> tuple[str, ...]:
    """Return the steps that lead to the broken promise; none if there is no counter-example."""
    if not (folder / "variant.pml.trail").exists():
        return ()
    trace = _run(folder, "spin", "-t", "-T", "variant.pml")
    return tuple(_STORY.findall(trace))


def _run(folder: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise CheckerFailedError(f"{program} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def _is_spin(program: str | None) -> bool:
    """Whether *program* is the model checker, and not another tool of that name."""
    if program is None:
        return False
    said = subprocess.run([program, "-V"], capture_output=True, text=True, check=False, timeout=10)
    return said.stdout.startswith("Spin Version")
