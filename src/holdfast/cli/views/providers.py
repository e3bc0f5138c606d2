"""Renders providers as text and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.cli.options.durations import format_duration, format_relative
from holdfast.cli.views.output import EMPTY, pairs, plain, show_fields, show_title
from holdfast.cli.views.table import Cell, Column, Fit, moment, show_rows, show_table
from holdfast.core.durations import Duration, duration
from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.limits import Rate
from holdfast.core.providers.provider import ProviderSpec
from holdfast.engine.providers.provider_service import ProviderStatus
from holdfast.ports.providers import ProviderEvent

COLUMNS = (
    Column("provider", Fit.CUT),
    Column("state"),
    Column("since", omit_if=(EMPTY,)),
    Column("failures", omit_if=(EMPTY,), drop_order=2),
    Column("held"),
    Column("until", omit_if=(EMPTY,)),
    Column("by", Fit.CUT, omit_if=(EMPTY,)),
    Column("reason", Fit.FOLDED, omit_if=(EMPTY,), min_width=14),
)
HELD = (Column("held by"), Column("jobs"))
HISTORY = (Column("at"), Column("event"), Column("details", Fit.FOLDED))

LENGTHS = ("age", "cooldown", "slow_after")
"""Fields of a breaker that are durations."""


class ProviderListing(NamedTuple):
    """The status of providers at a time of the store's clock."""

    statuses: Sequence[ProviderStatus]
    now: datetime


class ProviderDetails(NamedTuple):
    """The details of a provider. *held* counts jobs by what they are held for."""

    status: ProviderStatus
    spec: ProviderSpec | None
    held: Mapping[str, int]
    events: Sequence[ProviderEvent]
    now: datetime


def show_list(found: ProviderListing) -> None:
    """Print providers as a table."""
    rows = [_row(status, found.now) for status in found.statuses]
    show_rows(
        COLUMNS,
        rows,
        if_empty="no provider is known; those of an application that were never called need --app",
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
    """Return when trials begin; `now` if a trial only needs a job."""
    return Cell(at, short="now") if at is not None and at <= now else moment(at, now)


def as_listed(status: ProviderStatus) -> dict[str, Any]:
    """Return the status of a provider as JSON values."""
    return asdict(status)


def as_json(details: ProviderDetails) -> dict[str, Any]:
    """Return the details of a provider as JSON values."""
    return {
        **as_listed(details.status),
        "declaration": None if details.spec is None else _as_declared(details.spec),
        "held_by": dict(details.held),
        "events": [
            {"kind": event.kind, "at": event.at, "meta": dict(event.meta)} for event in details.events
        ],
    }


def _as_declared(spec: ProviderSpec) -> dict[str, Any]:
    """Return a declaration as JSON values; durations are seconds."""
    breaker = asdict(spec.breaker)
    seconds = {
        name: None if breaker[name] is None else duration(breaker[name]).total_seconds() for name in LENGTHS
    }
    return {"timeout": spec.timeout.total_seconds(), **_limits(spec), "breaker": {**breaker, **seconds}}


def show(details: ProviderDetails) -> None:
    """Print the details of a provider."""
    show_fields(_fields(details))
    if details.held:
        show_title("held jobs")
        show_table(HELD, list(details.held.items()))
    if details.events:
        show_title("history, the newest first")
        show_table(HISTORY, [(event.at, event.kind, describe_event(event)) for event in details.events])


def _fields(details: ProviderDetails) -> dict[str, object]:
    """Collect the fields that are set; limits are known only if the provider is declared."""
    status, spec, now = details.status, details.spec, details.now
    fields: dict[str, object] = {
        "provider": status.name,
        "state": status.state,
        "since": _instant_and_age(status.since, now),
        "trials_from": _instant_and_age(status.until, now),
        "trials": status.trials or None,
        "failures": f"{status.failed} of {status.calls} calls" if status.calls else None,
        "held": status.held,
        "ordered_by": status.actor,
        "reason": status.reason,
        "backup": status.backup,
    }
    if spec is None:
        fields["declared"] = False
    else:
        fields |= {
            "timeout": _format_length(spec.timeout),
            **_limits(spec),
            "breaker": _breaker(spec.breaker),
        }
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _instant_and_age(at: datetime | None, now: datetime) -> str | None:
    return None if at is None else f"{plain(at)} ({format_relative(at, now)})"


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
    """Format a rate as it is declared.

    >>> _rate(Rate.of("50/s")), _rate(Rate.of("5/10s"))
    ('50/s', '5/10s')
    """
    if rate is None:
        return None
    per = _format_length(rate.per)
    return f"{rate.calls}/{per[1:] if per in ('1s', '1m', '1h', '1d') else per}"


def _breaker(breaker: Breaker) -> str:
    words = (
        f"opens when more than {breaker.threshold:.0%} of the last {breaker.window} calls failed, "
        f"at least {breaker.minimum}; {breaker.trials} trials after {_format_length(breaker.cooldown)}"
    )
    if breaker.slow_after is None:
        return words
    return f"{words}; also when more than {breaker.slow_threshold:.0%} took over {_format_length(breaker.slow_after)}"


def _format_length(length: Duration) -> str:
    """Format a duration that may be shorter than a second."""
    exact = duration(length)
    return f"{exact.total_seconds():g}s" if exact < timedelta(seconds=10) else format_duration(exact)


def describe_event(event: ProviderEvent) -> str:
    """Describe an event of a provider.

    >>> from datetime import UTC
    >>> meta = {"cause": "failures", "seconds": 30, "failed": 11, "calls": 20}
    >>> describe_event(ProviderEvent("llm", datetime.now(UTC), "opened", meta))
    '11 of 20 calls failed; trials after 30s'
    """
    meta = event.meta
    match event.kind:
        case "opened":
            return f"{_why(meta)}; trials after {_format_length(meta['seconds'])}"
        case "closed":
            return f"after {_format_length(meta['seconds'])}"
        case "tried":
            return _TRIALS.get(meta["outcome"], str(meta["outcome"]))
        case "ordered" | "resumed" | "probe":
            words = f"{meta['order']} by {meta['actor']}" if "order" in meta else f"by {meta['actor']}"
            return f"{words}: {meta['reason']}" if meta.get("reason") else words
        case _:
            return pairs(meta)


def _why(meta: Mapping[str, Any]) -> str:
    match meta["cause"]:
        case "limited":
            return "the provider asked for a pause"
        case "blocked":
            return "the provider refuses all calls until an operator acts"
        case _ if "failed" in meta:
            return f"{meta['failed']} of {meta['calls']} calls failed"
        case _ if "calls" in meta:
            return f"too many of {meta['calls']} calls were slow"
        case _:
            return "a trial failed"


_TRIALS = {
    "success": "the trial succeeded",
    "failure": "the trial failed",
    "ignored": "the trial was inconclusive",
    "limited": "the provider asked the trial to wait",
    "denied": "the credentials were refused",
    "exhausted": "the quota is spent",
}
