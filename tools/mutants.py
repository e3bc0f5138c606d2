"""Makes every small change to the core, and counts the changes that no unit test detects.

mutmut makes the changes, one at a time: a `<` becomes `<=`, an argument becomes None, a text gets an `XX`. Each
changed program is a mutant. The tests that reach the changed function are run against it; if one fails, the
mutant is killed, and if none does, it has survived: either a claim is missing, or the code says more than it
means. What stands outside of functions (tables, fields) is not changed, nor are f-strings.

Everything happens on a copy in `build/mutants`. Prints a table, then one line of JSON, and exits with 1 when
fewer than 85 of 100 mutants were killed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, get_args

Outcome = Literal["killed", "survived", "no tests", "timeout", "other"]

ROOT = Path(__file__).parents[1]
CORE = Path("src/holdfast/core")
FOLDER = ROOT / "build" / "mutants"
CHANGED = FOLDER / "mutants"
"""Where mutmut keeps the changed copy and its results."""

PLUGIN = ["-p", "tools.plain_examples"]
MINIMUM_PERCENT = 85.0
TIMEOUT_SECONDS = 300

_OUTCOMES: dict[int | None, Outcome] = {
    0: "survived",
    1: "killed",
    3: "killed",
    5: "no tests",
    33: "no tests",
    -24: "timeout",
    24: "timeout",
    36: "timeout",
    152: "timeout",
    255: "timeout",
}

_RUN_AT_IMPORT = """
import importlib, json, pkgutil
import holdfast.core
from mutmut.state import state

for module in pkgutil.walk_packages(holdfast.core.__path__, "holdfast.core."):
    importlib.import_module(module.name)
print(json.dumps(sorted(state()._stats)))
"""


class Mutant(NamedTuple):
    """One small change: the function it was made in, and the outcome of its tests."""

    name: str
    outcome: Outcome

    @property
    def module(self) -> str:
        """The module of the core, by its last name."""
        return self.function.split(".")[-2]

    @property
    def function(self) -> str:
        """The changed function as mutmut writes it."""
        return self.name.partition("__mutmut_")[0]


def chosen_tests() -> list[str]:
    """Return the tests that are run on mutants: those named after a module of the core."""
    files = (
        f"tests/unit/test_{module.stem}.py"
        for module in sorted((ROOT / CORE).rglob("*.py"), key=lambda file: file.stem)
    )
    return [file for file in files if (ROOT / file).exists()]


def prepare() -> None:
    """Create a fresh copy of the project, with mutmut's settings at the end of its `pyproject.toml`."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for folder in ("src/holdfast", "tests", "tools"):
        shutil.copytree(ROOT / folder, FOLDER / folder, ignore=shutil.ignore_patterns("__pycache__"))
    settings = f"""
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["{CORE}/*.py", "{CORE}/*/*.py"]
also_copy = ["tools"]
pytest_add_cli_args = {json.dumps(PLUGIN)}
pytest_add_cli_args_test_selection = {json.dumps(chosen_tests())}
use_git_change_detection = false
"""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (FOLDER / "pyproject.toml").write_text(project + settings, encoding="utf-8")


def run_mutmut() -> None:
    """Make the mutants and run the tests on them; mutmut's output goes to a file."""
    log = FOLDER / "mutmut.log"
    command = [str(Path(sys.executable).with_name("mutmut")), "run"]
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.call(command, cwd=FOLDER, env=_environment(), stdout=output, stderr=output)
    if code != 0:
        print(log.read_text(encoding="utf-8")[-4_000:], file=sys.stderr)
        raise SystemExit(f"mutmut failed; its output is in {log}")


def read_mutants() -> list[Mutant]:
    """Return the results that mutmut stored beside each module."""
    notes = sorted((CHANGED / CORE).rglob("*.py.meta"))
    return [mutant for note in notes for mutant in mutants_in(note.read_text(encoding="utf-8"))]


def mutants_in(note: str) -> list[Mutant]:
    """Return the mutants of one module; an unknown exit code counts as other, and not as killed."""
    codes: dict[str, int | None] = json.loads(note)["exit_code_by_key"]
    return [Mutant(name, _OUTCOMES.get(code, "other")) for name, code in codes.items()]


def rerun_survivors(mutants: list[Mutant]) -> list[Mutant]:
    """Give survivors in functions that run when a module is imported a process of their own.

    mutmut imports everything once and forks, so that a change in such a function has no effect.
    """
    if _rerun(Mutant("holdfast.core.none.x_none", "other")).outcome != "survived":
        raise SystemExit("The tests fail in a process of their own, also where nothing was changed.")
    late = _run_at_import()

    def judged(mutant: Mutant) -> Mutant:
        unseen = mutant.outcome != "killed" and mutant.function in late
        return _rerun(mutant) if unseen else mutant

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(judged, mutants))


def table(mutants: list[Mutant]) -> str:
    """Return one line for each module, and one for all."""
    modules = sorted({mutant.module for mutant in mutants})
    lines = [
        f"{'module':<14}{'mutants':>8}" + "".join(f"{name:>10}" for name in get_args(Outcome)) + "  percent"
    ]
    lines += [_row(module, [one for one in mutants if one.module == module]) for module in modules]
    return "\n".join([*lines, _row("all", mutants)])


def as_json(mutants: list[Mutant]) -> str:
    """Return the counts for a program."""
    counts = Counter(mutant.outcome for mutant in mutants)
    totals = {name.replace(" ", "_"): counts[name] for name in get_args(Outcome)}
    return json.dumps({"mutants": len(mutants), **totals, "percent": round(percent(mutants), 1)})


def percent(mutants: list[Mutant]) -> float:
    """Return how many of a hundred were killed. One that ran out of time was not."""
    return 100 * sum(mutant.outcome == "killed" for mutant in mutants) / len(mutants)


def main() -> int:
    """Do all of it, and return the exit code."""
    folder = FOLDER.relative_to(ROOT)
    print(f"Mutants ... this takes about ten minutes; the progress is in {folder}/mutmut.log", flush=True)
    prepare()
    run_mutmut()
    mutants = rerun_survivors(read_mutants())
    left = [mutant.name for mutant in mutants if mutant.outcome != "killed"]
    (FOLDER / "left.txt").write_text("\n".join(left) + "\n", encoding="utf-8")
    print(table(mutants))
    print(
        f"\nThose left are listed in {folder}/left.txt; there, `../../.mutants-venv/bin/mutmut show NAME` shows one."
    )
    print(as_json(mutants))
    return 0 if percent(mutants) >= MINIMUM_PERCENT else 1


def _environment(mutant: str | None = None) -> dict[str, str]:
    paths = {"PYTHONPATH": f"src{os.pathsep}."}
    return os.environ | paths | ({} if mutant is None else {"MUTANT_UNDER_TEST": mutant})


def _run_at_import() -> set[str]:
    command = [sys.executable, "-c", _RUN_AT_IMPORT]
    listed = subprocess.run(
        command, cwd=CHANGED, env=_environment("stats"), stdout=subprocess.PIPE, check=True, text=True
    )
    return set(json.loads(listed.stdout))


def _rerun(mutant: Mutant) -> Mutant:
    own = f"tests/unit/test_{mutant.module}.py"
    tests = sorted(chosen_tests(), key=lambda file: file != own)
    command = [sys.executable, "-m", "pytest", "-x", "-q", *PLUGIN, *tests]
    try:
        code = subprocess.call(
            command,
            cwd=CHANGED,
            env=_environment(mutant.name),
            stdout=subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return mutant._replace(outcome="timeout")
    return mutant._replace(outcome="killed" if code else "survived")


def _row(name: str, mutants: list[Mutant]) -> str:
    counts = Counter(mutant.outcome for mutant in mutants)
    columns = "".join(f"{counts[outcome]:>10}" for outcome in get_args(Outcome))
    return f"{name:<14}{len(mutants):>8}{columns}{percent(mutants):>7.1f} %"


if __name__ == "__main__":
    sys.exit(main())
