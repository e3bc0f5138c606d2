"""Providers on the command line: what happened to one is rendered in words, and its declaration as it was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Breaker
from holdfast.cli.views.providers import (
    ProviderDetails,
    ProviderListing,
    as_json,
    describe_event,
    show,
    show_list,
)
from holdfast.core.providers.limits import Limits, Rate
from holdfast.core.providers.provider import ProviderSpec
from holdfast.operations import ProviderEvent, ProviderStatus

NOW = datetime(2026, 3, 2, 9, 32, 27, tzinfo=UTC)

OPEN = ProviderStatus(
    name="llm",
    declared=True,
    state="open",
    held=9_989,
    failure_rate=0.55,
    failed=11,
    calls=20,
    trials=0,
    since=NOW - timedelta(seconds=250),
    until=NOW + timedelta(seconds=12),
)
SPEC = ProviderSpec(
    "llm",
    timeout=timedelta(milliseconds=500),
    limits=Limits(8, Rate.of("50/s")),
    key_limits=Limits(rate=Rate.of("60/min")),
    breaker=Breaker(slow_after="90s"),
)


def happened(kind: str, **meta: Any) -> ProviderEvent:
    return ProviderEvent("llm", NOW, kind, meta)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            happened("opened", cause="failures", seconds=30.0, failed=11, calls=20),
            "11 of 20 calls failed; trials after 30s",
        ),
        (happened("opened", cause="failures", seconds=30.0), "a trial failed; trials after 30s"),
        (
            happened("opened", cause="failures", seconds=30.0, calls=20),
            "too many of 20 calls were slow; trials after 30s",
        ),
        (
            happened("opened", cause="limited", seconds=7.25),
            "the provider asked for a pause; trials after 7.25s",
        ),
        (
            happened("opened", cause="blocked", seconds=300.0),
            "the provider refuses all calls until an operator acts; trials after 5m",
        ),
        (happened("closed", cause="failures", seconds=250.4), "after 4m10s"),
        (happened("tried", cause="failures", outcome="success"), "the trial succeeded"),
        (happened("tried", cause="blocked", outcome="exhausted"), "the quota is spent"),
        (
            happened("ordered", order="forced open", actor="ada", reason="no money"),
            "forced open by ada: no money",
        ),
        (happened("resumed", actor="bob", reason=""), "by bob"),
        (happened("probe", actor="bob", reason="is it back?"), "by bob: is it back?"),
        (happened("of a later version", colour="green"), "colour=green"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_happened_to_a_provider_is_rendered_in_words(event: ProviderEvent, words: str) -> None:
    assert describe_event(event) == words


def test_in_a_pipe_a_provider_is_one_line_with_instants(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(ProviderListing([OPEN], NOW))

    assert capsys.readouterr().out.split("\t") == [
        "llm",
        "open",
        "2026-03-02T09:28:17Z",
        "11/20",
        "9989",
        "2026-03-02T09:32:39Z",
        "-",
        "-\n",
    ]


def test_a_provider_is_shown_with_its_declaration_its_holders_and_its_history(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(
        ProviderDetails(OPEN, SPEC, {"llm": 9_980, "llm (limit)": 9}, [happened("resumed", actor="ada")], NOW)
    )

    lines = capsys.readouterr().out.splitlines()
    fields = dict(line.split("\t") for line in lines[: lines.index("")])
    assert fields == {
        "provider": "llm",
        "state": "open",
        "since": "2026-03-02T09:28:17Z (4m10s ago)",
        "trials_from": "2026-03-02T09:32:39Z (in 12s)",
        "failures": "11 of 20 calls",
        "held": "9989",
        "timeout": "0.5s",
        "concurrency": "8",
        "rate": "50/s",
        "rate_per_key": "60/m",
        "breaker": "opens when more than 50% of the last 20 calls failed, at least 10; 3 trials after 30s; "
        "also when more than 80% took over 1m30s",
    }
    assert lines[lines.index("held jobs") + 1 :][:2] == ["llm\t9980", "llm (limit)\t9"]
    assert lines[-1] == "2026-03-02T09:32:27Z\tresumed\tby ada"


def test_a_program_gets_lengths_in_seconds() -> None:
    found = as_json(ProviderDetails(OPEN, SPEC, {}, [], NOW))["declaration"]

    assert (found["timeout"], found["rate"]) == (0.5, "50/s")
    assert (found["breaker"]["cooldown"], found["breaker"]["slow_after"]) == (30.0, 90.0)


def test_what_is_declared_elsewhere_is_shown_without_limits(capsys: pytest.CaptureFixture[str]) -> None:
    show(ProviderDetails(OPEN, None, {}, [], NOW))

    assert "declared\tno" in capsys.readouterr().out.splitlines()
    assert as_json(ProviderDetails(OPEN, None, {}, [], NOW))["declaration"] is None
