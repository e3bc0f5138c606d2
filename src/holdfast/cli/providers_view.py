"""Providers as people and programs read them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.cli.lengths import brief, from_now
from holdfast.cli.output import NOTHING, pairs, plain, show_fields, show_title
from holdfast.cli.tables import Cell, Column, Room, moment, show_rows, show_table
from holdfast.core.breakers import Breaker
from holdfast.core.durations import Length, duration
from holdfast.core.limits import Rate
from holdfast.core.providers import ProviderSpec
from holdfast.face import ProviderStatus
from holdfast.ports.providers import ProviderEvent

COLUMNS = (
    Column("provider", Room.CUT),
    Column("state"),
    Column("since", usual=(NOTHING,)),
    Column("failures", usual=(NOTHING,), spared=2),
    Column("held"),
    Column("until", usual=(NOTHING,)),
    Column("by", Room.CUT, usual=(NOTHING,)),
    Column("reason", Room.FOLDED, usual=(NOTHING,), least=14),
)
HELD = (Column("held by"), Column("jobs"))
HISTORY = (Column("at"), Column("event"), Column("details", Room.FOLDED))

LENGTHS = ("age", "cooldown", "slow_after")
"""What of a breaker is a length of time."""


class Listed(NamedTuple):
    """How providers stand, by the store's clock."""

    statuses: Sequence[ProviderStatus]
    now: datetime


class Whole(NamedTuple):
    """Everything that there is to tell of a provider. *held* counts jobs by who holds them."""

    status: ProviderStatus
    spec: ProviderSpec | None
    held: Mapping[str, int]
    events: Sequence[ProviderEvent]
    now: datetime


def show_list(found: Listed) -> None:
    """Show providers to people."""
    rows = [_row(status, found.now) for status in found.statuses]
    show_rows(
        COLUMNS,
        rows,
        nothing="no provider is known; those of an application that were never called need --app",
    )


def _row(status: ProviderStatus, now: datetime) -> tuple[object, ...]:
    return (
        status.name,
        status.state,
        moment(status.since, now),
        f"{status.failed}/{status.calls}" if status.calls else None,
        status.held,
        _until(status.until, now),
        status.actor,
        status.reason,
    )


def _until(at: datetime | None, now: datetime) -> Cell | None:
    """Tell when trials begin; one whose time has come waits for nothing but a job."""
    return Cell(at, short="now") if at is not None and at <= now else moment(at, now)


def as_listed(status: ProviderStatus) -> dict[str, Any]:
    """Give how a provider stands as JSON values."""
    return asdict(status)


def as_json(whole: Whole) -> dict[str, Any]:
    """Give all that there is to tell of a provider as JSON values."""
    return {
        **as_listed(whole.status),
        "declaration": None if whole.spec is None else _as_declared(whole.spec),
        "held_by": dict(whole.held),
        "events": [{"kind": event.kind, "at": event.at, "meta": dict(event.meta)} for event in whole.events],
    }


def _as_declared(spec: ProviderSpec) -> dict[str, Any]:
    """Give a declaration as JSON values; lengths are seconds."""
    breaker = asdict(spec.breaker)
    seconds = {
        name: None if breaker[name] is None else duration(breaker[name]).total_seconds() for name in LENGTHS
    }
    return {"timeout": spec.timeout.total_seconds(), **_limits(spec), "breaker": {**breaker, **seconds}}


def show(whole: Whole) -> None:
    """Show a provider to people."""
    show_fields(_fields(whole))
    if whole.held:
        show_title("held jobs")
        show_table(HELD, list(whole.held.items()))
    if whole.events:
        show_title("history, the newest first")
        show_table(HISTORY, [(event.at, event.kind, told(event)) for event in whole.events])


def _fields(whole: Whole) -> dict[str, object]:
    """Name what is known; what is not declared here has no limits to show."""
    status, now = whole.status, whole.now
    fields = {
        "provider": status.name,
        "state": status.state,
        "since": _both(status.since, now),
        "trials_from": _both(status.until, now),
        "trials": status.trials or None,
        "failures": f"{status.failed} of {status.calls} calls" if status.calls else None,
        "held": status.held,
        "ordered_by": status.actor,
        "reason": status.reason,
        "backup": status.backup,
    }
    declared = {"declared": False} if whole.spec is None else _declaration(whole.spec)
    return {name: value for name, value in (fields | declared).items() if value not in (None, "")}


def _both(at: datetime | None, now: datetime) -> str | None:
    return None if at is None else f"{plain(at)} ({from_now(at, now)})"


def _declaration(spec: ProviderSpec) -> dict[str, object]:
    return {"timeout": _length(spec.timeout), **_limits(spec), "breaker": _breaker(spec.breaker)}


def _limits(spec: ProviderSpec) -> dict[str, object]:
    own, each = spec.limits, spec.key_limits
    return {
        "concurrency": own.concurrency,
        "rate": _rate(own.rate),
        "concurrency_per_key": each.concurrency,
        "rate_per_key": _rate(each.rate),
        "retry_budget": spec.retry_budget,
    }


def _rate(rate: Rate | None) -> str | None:
    """Write a rate as it is declared.

    >>> _rate(Rate.of("50/s")), _rate(Rate.of("5/10s"))
    ('50/s', '5/10s')
    """
    if rate is None:
        return None
    per = _length(rate.per)
    return f"{rate.calls}/{per[1:] if per in ('1s', '1m', '1h', '1d') else per}"


def _breaker(breaker: Breaker) -> str:
    words = (
        f"opens when more than {breaker.threshold:.0%} of the last {breaker.window} calls failed, "
        f"at least {breaker.minimum}; {breaker.trials} trials after {_length(breaker.cooldown)}"
    )
    if breaker.slow_after is None:
        return words
    return (
        f"{words}; also when more than {breaker.slow_threshold:.0%} took over {_length(breaker.slow_after)}"
    )


def _length(length: Length) -> str:
    """Write a length that may be shorter than a second."""
    exact = duration(length)
    return f"{exact.total_seconds():g}s" if exact < timedelta(seconds=10) else brief(exact)


def told(event: ProviderEvent) -> str:
    """Tell in words what happened.

    >>> from datetime import UTC
    >>> meta = {"cause": "failures", "seconds": 30, "failed": 11, "calls": 20}
    >>> told(ProviderEvent("llm", datetime.now(UTC), "opened", meta))
    '11 of 20 calls failed; trials after 30s'
    """
    meta = event.meta
    match event.kind:
        case "opened":
            return f"{_why(meta)}; trials after {_length(meta['seconds'])}"
        case "closed":
            return f"after {_length(meta['seconds'])}"
        case "tried":
            return _TRIALS.get(meta["outcome"], str(meta["outcome"]))
        case "ordered" | "resumed" | "probe":
            return _by(meta)
        case _:
            return pairs(meta)


def _why(meta: Mapping[str, Any]) -> str:
    match meta["cause"]:
        case "limited":
            return "it asked to be left alone"
        case "blocked":
            return "it refuses every call, until a person does something"
        case _ if "failed" in meta:
            return f"{meta['failed']} of {meta['calls']} calls failed"
        case _ if "calls" in meta:
            return f"too many of {meta['calls']} calls were slow"
        case _:
            return "a trial failed"


_TRIALS = {
    "success": "the trial succeeded",
    "failure": "the trial failed",
    "ignored": "the trial told nothing",
    "limited": "the trial was told to wait",
    "denied": "the credentials were refused",
    "exhausted": "the quota is spent",
}


def _by(meta: Mapping[str, Any]) -> str:
    words = f"{meta['order']} by {meta['actor']}" if "order" in meta else f"by {meta['actor']}"
    return f"{words}: {meta['reason']}" if meta.get("reason") else words
