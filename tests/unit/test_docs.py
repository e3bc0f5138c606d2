"""The pages agree with each other, and with what lies in the repository."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tools.conformance import read_page

ROOT = Path(__file__).parents[2]

CLAUSES = {
    "JOB": 12,
    "FAIL": 5,
    "RET": 7,
    "STG": 3,
    "BRK": 6,
    "IDM": 4,
    "OUT": 5,
    "DLQ": 4,
    "OPS": 4,
    "SLA": 4,
    "DLV": 6,
    "OBS": 4,
    "AUT": 1,
    "CFG": 1,
    "GRD": 11,
    "CNV": 4,
    "REV": 3,
}


def test_no_guarantee_has_fallen_off_the_page() -> None:
    page = read_page((ROOT / "docs/reference/guarantees.md").read_text(encoding="utf-8"))

    assert Counter(guarantee.id.split("-")[0] for guarantee in page) == CLAUSES


def test_every_record_of_a_decision_is_in_the_list_of_records() -> None:
    records = sorted(path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md"))
    listed = (ROOT / "docs/adr/index.md").read_text(encoding="utf-8")

    assert [name for name in records if f"({name})" not in listed] == []


def test_every_target_of_the_makefile_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [phony] = [line for line in makefile.splitlines() if line.startswith(".PHONY:")]

    unexplained = [
        target
        for target in phony.removeprefix(".PHONY:").split()
        if not any(line.startswith(f"{target}:") and "## " in line for line in makefile.splitlines())
    ]

    assert unexplained == []
