"""Mistakes around providers: gates, trials, held jobs, limits and backups."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.core import breakers, limits, providers
from holdfast.core.breakers import (
    Breaker,
    Cause,
    Gate,
    Outcome,
    Report,
    Seen,
    calls_for_backup,
    heard,
    lets_through,
    release,
)
from holdfast.core.limits import LEASE, Quota, Rate, Share
from holdfast.core.transitions import Requeue, hold
from holdfast.engine import calls, lines, permits
from holdfast.engine.calls import Calls
from holdfast.engine.permits import BAD, Asking, Permit, Permits
from tests.planted.planting import Bug, Swap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.core.breakers import Change
    from holdfast.core.jobs import Claim

_ASK = Permits.ask
_AN_HOUR = 3_600.0


# Gates and trials.


def _open_for_the_late(
    gate: Gate, breaker: Breaker, reports: Iterable[Report], now: float
) -> tuple[Gate, list[Change]]:
    told = list(reports)
    late = any(report.outcome is Outcome.SUCCESS and report.generation < gate.generation for report in told)
    if late and gate.shut is not None:
        gate = breakers._cleared(gate, now)
    return heard(gate, breaker, told, now)


def _hear_everybody(
    gate: Gate, breaker: Breaker, reports: Iterable[Report], now: float
) -> tuple[Gate, list[Change]]:
    return heard(gate, breaker, [report._replace(generation=gate.generation) for report in reports], now)


def _remember_all(gate: Gate, breaker: Breaker, report: Report, now: float) -> Gate:
    failed = report.outcome is Outcome.FAILURE
    seen = (*gate.seen, Seen(now, failed, report.slow))[-breaker.window :]
    return replace(gate, seen=seen, denials=gate.denials if failed else 0)


async def _everybody_pays(self: Any, permit: Permit, failure: Any) -> bool:
    outcome = providers.outcome_of(failure)
    wait = None if failure.wait is None else failure.wait.total_seconds()
    counted = await permit.ended(outcome, wait=wait)
    return outcome in BAD and not counted and not permit.is_trial


async def _wait_for_nobody(self: Any) -> None:
    return


# Held jobs.


def _hold_spent(claim: Claim, reason: str, *, held_by: str) -> Requeue:
    return hold(claim, reason, held_by=held_by)._replace(gives_back=False)


async def _wait_in_the_slot(self: Any, spec: Any, asking: Asking) -> Permit:
    while True:
        answer = await _ASK(self, spec, asking)
        if isinstance(answer, Permit):
            return answer
        await asyncio.sleep(0.5)


def _release_all(gate: Gate, breaker: Breaker, now: float, *, elsewhere: bool = False) -> tuple[Gate, int]:
    after, size = release(gate, breaker, now, elsewhere=elsewhere)
    return after, 1_000 if size and lets_through(gate) else size


def _release_a_few(gate: Gate, breaker: Breaker, now: float, *, elsewhere: bool = False) -> tuple[Gate, int]:
    if gate.ramp is not None and gate.ramp.size > breakers.FIRST_RELEASE:
        return gate, 0
    return release(gate, breaker, now, elsewhere=elsewhere)


# Limits and backups.


def _take_what_is_far_off(self: Quota, rate: Rate | None, now: float) -> float:
    if rate is None or self.next_at > now + rate.interval:
        return now
    return max(self.next_at, now)


def _share_with_the_dead(
    shares: Mapping[str, Share], limit: int, worker: str, *, using: int, wanted: int, now: float
) -> dict[str, Share]:
    kept = {name: share for name, share in shares.items() if name != worker}
    free = limit - sum(share.calls for share in kept.values())
    count = max(using, min(wanted, free))
    return {**kept, worker: Share(count, wanted, now + LEASE)} if count or wanted else kept


async def _ask_for_one_customer(self: Any, spec: Any, asking: Asking) -> Any:
    return await _ASK(self, spec, asking._replace(key="customer 0") if asking.key else asking)


def _share_by_heart(
    shares: Mapping[str, Share], limit: int, worker: str, *, using: int, wanted: int, now: float
) -> dict[str, Share]:
    return {worker: Share(min(limit, max(using, wanted)), wanted, now + LEASE)}


def _backup_for_the_impatient(gate: Gate) -> bool:
    return calls_for_backup(gate) or (gate.shut is not None and gate.shut.cause is Cause.LIMITED)


BUGS = (
    Bug(
        "late-result-opens",
        "It has answered, so it is back.",
        ("BRK-3",),
        (Swap(lines, "heard", _open_for_the_late),),
    ),
    Bug(
        "generation-ignored",
        "A failure is a failure, whenever the call began.",
        ("BRK-4",),
        (Swap(lines, "heard", _hear_everybody),),
    ),
    Bug(
        "old-outcomes-counted",
        "The last six calls are the last six calls.",
        ("BRK-1",),
        (Swap(breakers, "_with_call", _remember_all),),
    ),
    Bug(
        "trial-slot-never-returned",
        "Whoever took a slot gives it back.",
        ("BRK-3",),
        (Swap(breakers, "TRIAL_LEASE", _AN_HOUR),),
    ),
    Bug(
        "trial-costs-an-attempt",
        "It was tried, so it counts.",
        ("BRK-2",),
        (Swap(Calls, "_told", _everybody_pays),),
    ),
    Bug(
        "refusal-stops-the-trial-beside-it",
        "The job is held, so its other calls can go as well.",
        (),
        (Swap(Calls, "_others_left", _wait_for_nobody),),
    ),
    Bug(
        "attempt-burnt-while-open",
        "The worker had it in hand, so that was an attempt.",
        ("BRK-2",),
        (Swap(calls, "hold", _hold_spent),),
    ),
    Bug(
        "hold-keeps-the-slot",
        "It will be back in a moment, so wait for it here.",
        ("BRK-2",),
        (Swap(Permits, "ask", _wait_in_the_slot),),
    ),
    Bug(
        "stampede-on-closing",
        "It is back: everybody out.",
        ("BRK-5",),
        (Swap(providers, "release", _release_all),),
    ),
    Bug(
        "held-forgotten-after-the-first-step",
        "Those who are out bring the others along.",
        ("BRK-5",),
        (Swap(providers, "release", _release_a_few),),
    ),
    Bug(
        "rate-granted-twice",
        "Moments that far off were reserved by somebody who is dead by now.",
        ("BRK-6",),
        (Swap(Quota, "moment", _take_what_is_far_off),),
    ),
    Bug(
        "share-kept-by-the-dead",
        "What is lent is lent.",
        ("BRK-6",),
        (Swap(limits, "share_out", _share_with_the_dead),),
    ),
    Bug(
        "share-without-the-others",
        "A worker knows best what it needs.",
        ("BRK-6",),
        (Swap(limits, "share_out", _share_by_heart),),
    ),
    Bug(
        "key-kept-for-ever",
        "A customer comes back, so his limit stays.",
        ("BRK-6",),
        (Swap(Quota, "expires", property(lambda self: 4e9)),),
    ),
    Bug(
        "key-of-another-customer",
        "One limit is as good as another.",
        ("BRK-6",),
        (Swap(Permits, "ask", _ask_for_one_customer),),
    ),
    Bug(
        "backup-for-the-impatient",
        "Why wait, if there is another one?",
        ("BRK-6",),
        (Swap(permits, "calls_for_backup", _backup_for_the_impatient),),
    ),
)
