"""Plant protocol bugs one by one, and show that each is found.

    python -m tests.planted                          all of it: two tables, and one line of JSON last
    python -m tests.planted --bug drop-the-fence     one bug
    python -m tests.planted --recorded               each bug, or each --bug, in the life that is known to show it; JSON lines
    python -m tests.planted --recorded --record      the same, and another life for those that it does not show any more
    python -m tests.planted --bug drop-the-fence --seed 3 --times 20 --between 5
                                                     one life again and again; JSON lines

The first table says for each bug which guarantees it breaks, what found it and after how many tries;
the second names for each guarantee a bug under which its own tests fail. Exit 1 if a bug was not found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.planted.bugs import BUGS
from tests.planted.finders import Found, Shown, by_crash_points, by_scenario, by_simulation, by_tests, live
from tests.planted.guarantees import BROKEN_BY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.planted.planting import Bug

SEEDS = 300
"""Lives after which a bug counts as not found by the simulation."""

ROUNDS = 4
"""Rounds after which a bug counts as not found by crash points; the whole walk takes many more."""

RECORD = Path(__file__).with_name("seeds.json")
"""For each bug where the quick check looks first: the first seed that shows it, or the crash-point scenario that does."""

RETRIED = 40
"""Lives that the quick check tries when the recorded one shows nothing: other code, other lives. Crash points follow."""

SAID = 110
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{23}([0-9a-f]{4})")


class Verdict(NamedTuple):
    """The outcome of the search for one bug."""

    name: str
    simulated: Found | None = None
    walked: Found | None = None
    shown: Shown = Shown([], 0)

    @property
    def bug(self) -> Bug:
        """The bug itself; its patches do not travel between processes."""
        return BUGS[self.name]

    @property
    def finder(self) -> str | None:
        """What found it; `None` if nothing did."""
        if self.simulated:
            return "simulation"
        if self.walked:
            return "crash points"
        return "tests" if self.shown.failed else None


def main() -> int:
    """Run from the command line."""
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set of texts depends on it, and with it what a seed brings about.
        os.execve(sys.executable, [sys.executable, "-m", "tests.planted", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})  # fmt: skip
    if options.seed is not None:
        bug = options.bug[0] if options.bug else None
        return _replay(bug, options.seed, times=options.times, between=options.between)
    names = options.bug or list(BUGS)
    if options.recorded:
        return _recorded(names, record=options.record)
    return _selfcheck(names, record=options.record)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--bug", choices=BUGS, action="append", help="this one alone; may be given several times"
    )
    parser.add_argument("--recorded", action="store_true", help="look only where each bug was found last")
    parser.add_argument("--record", action="store_true", help="record where each bug was found")
    parser.add_argument("--seed", type=int, help="live through this one, with the bug or without any")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--between", type=int, help="another seed to live through in between")
    return parser.parse_args()


# The whole check.


def _selfcheck(names: list[str], *, record: bool) -> int:
    verdicts = list(_searched(names))
    clauses = _broken_clauses(names)
    line = {
        "bugs": len(verdicts),
        "found": sum(verdict.finder is not None for verdict in verdicts),
        "by_simulation": sum(verdict.simulated is not None for verdict in verdicts),
        "by_crash_points": sum(verdict.walked is not None for verdict in verdicts),
        "only_by_tests": sum(verdict.finder == "tests" for verdict in verdicts),
        "most_seeds": max((verdict.simulated.tries for verdict in verdicts if verdict.simulated), default=0),
        "clauses": len(clauses),
        "clauses_broken": sum(clauses.values()),
        "not_found": [verdict.name for verdict in verdicts if verdict.finder is None],
    }
    _print(json.dumps(line))
    if record:
        _record(
            {
                verdict.name: _place(found)
                for verdict in verdicts
                if (found := verdict.simulated or verdict.walked)
            }
        )
    return 0 if line["found"] == line["bugs"] and all(clauses.values()) else 1


def _searched(names: list[str]) -> Iterator[Verdict]:
    """Search for each bug with every finder that may show it, and print a line for each as it comes."""
    _print(f"{'bug':32} {'breaks':14} {'seeds':>5} {'crash points':>12}  what was said")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for verdict in pool.map(_search, names):
            _print(_row(verdict))
            yield verdict


def _search(name: str) -> Verdict:
    bug = BUGS[name]
    if not bug.simulated:
        return Verdict(name, shown=by_tests(name, bug.clauses[0]))
    return Verdict(name, by_simulation(name, range(1, SEEDS + 1)), by_crash_points(name, rounds=ROUNDS))


def _row(verdict: Verdict) -> str:
    clauses = " ".join(verdict.bug.clauses) or "-"
    seeds = verdict.simulated.tries if verdict.simulated else "-"
    points = verdict.walked.tries if verdict.walked else "-"
    return f"{verdict.name:32} {clauses:14} {seeds:>5} {points:>12}  {_said(verdict)}"


def _said(verdict: Verdict) -> str:
    """Return the violation that showed the bug, without the rows, and with ids by their ends."""
    found = verdict.simulated or verdict.walked
    if found is None:
        return f"its tests failed: {verdict.shown.failed[0]}" if verdict.shown.failed else "NOT FOUND"
    return _ID.sub(r"\1", found.said.partition(" Row(")[0])[:SAID]


def _broken_clauses(names: list[str]) -> dict[str, bool]:
    """Run the tests of each guarantee under its bug, and all of them under none; print a line for each."""
    checks = [(bug, clause) for clause, bug in BROKEN_BY.items() if bug in names]
    if not checks:
        return {}
    _print("", f"{'guarantee':10} {'bug':32} {'tests failed':>12}  for example")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        healthy = pool.submit(by_tests, None, None)
        broken = dict(zip(checks, pool.map(by_tests, *zip(*checks, strict=True)), strict=True))
    for (bug, clause), shown in broken.items():
        _print(_line(clause, bug, shown))
    _print(_line("all", "none", healthy.result()))
    sound = bool(healthy.result().passed) and not healthy.result().failed
    return {clause: sound and bool(shown.failed) for (_, clause), shown in broken.items()}


def _line(clause: str, bug: str, shown: Shown) -> str:
    example = shown.failed[0] if shown.failed else f"none of {shown.passed}"
    return f"{clause:10} {bug:32} {len(shown.failed):>12}  {example}"


# The quick check, and replays.


def _recorded(names: list[str], *, record: bool) -> int:
    """Look for each bug where it was found last, and for none in the same lives of a healthy engine."""
    known = _known()
    places = [(name, known.get(name, 1)) for name in names if BUGS[name].simulated]
    search = partial(_where_it_was, others=SEEDS if record else RETRIED)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for (name, _), found in zip(places, pool.map(search, places), strict=True):
            _print(json.dumps({"bug": name, **(found._asdict() if found else {"said": None})}))
            if record and found is not None:
                _record({name: _place(found)})
        for lived in pool.map(
            partial(live, None), sorted({seed for _, seed in places if isinstance(seed, int)})
        ):
            _print(json.dumps({"bug": None, **lived._asdict()}))
    return 0


def _where_it_was(place: tuple[str, int | str], *, others: int) -> Found | None:
    name, where = place
    if isinstance(where, str):
        found = by_scenario(name, where) or by_simulation(name, range(1, others + 1))
    else:
        found = by_simulation(name, chain([where], range(1, others + 1)))
    return found or by_crash_points(name, rounds=1)


def _place(found: Found) -> int | str:
    """Return where to look for a bug again: a seed, or the scenario that showed it."""
    return int(found.where) if found.where.isdecimal() else found.where.partition(",")[0]


def _known() -> dict[str, int | str]:
    known: dict[str, int | str] = json.loads(RECORD.read_text(encoding="utf-8"))
    return known


def _record(found: dict[str, int | str]) -> None:
    seeds = {name: seed for name, seed in (_known() | found).items() if name in BUGS}
    RECORD.write_text(json.dumps(seeds, indent=1) + "\n", encoding="utf-8")


def _replay(bug: str | None, seed: int, *, times: int, between: int | None) -> int:
    for _ in range(times):
        if between is not None:
            live(None, between)
        _print(json.dumps(live(bug, seed)._asdict()))
    return 0


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
