"""Mistakes around providers: breakers, trials, held jobs, limits and backups."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.core.jobs.transitions import Requeue, hold
from holdfast.core.providers import call_reports, limits, permission, provider, provider_state
from holdfast.core.providers.breaker_state import (
    FIRST_RELEASE,
    BreakerState,
    OpenCause,
    RecordedCall,
    calls_for_backup,
    lets_through,
)
from holdfast.core.providers.call_reports import CallOutcome, CallReport, apply_reports
from holdfast.core.providers.limits import LEASE, Quota, Rate, Share
from holdfast.core.providers.ramp import release
from holdfast.engine.execution import provider_calls
from holdfast.engine.execution.provider_calls import ProviderCalls
from holdfast.engine.providers import admission, provider_link
from holdfast.engine.providers.admission import BAD_OUTCOMES, Admission, Permit, PermitRequest
from tests.planted.planting import Bug, Swap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.core.jobs.job import Claim
    from holdfast.core.providers.breaker import Breaker
    from holdfast.core.providers.call_reports import BreakerChange
    from holdfast.core.providers.holder import Holder

_ASK = Admission.acquire
_AN_HOUR = 3_600.0


# Breakers and trials.


def _close_for_the_late(
    state: BreakerState, breaker: Breaker, reports: Iterable[CallReport], now: float
) -> tuple[BreakerState, list[BreakerChange]]:
    listed = list(reports)
    late = any(
        report.outcome is CallOutcome.SUCCESS and report.generation < state.generation for report in listed
    )
    if late and state.open_period is not None:
        state = call_reports._closed(state, now)
    return apply_reports(state, breaker, listed, now)


def _apply_late_reports(
    state: BreakerState, breaker: Breaker, reports: Iterable[CallReport], now: float
) -> tuple[BreakerState, list[BreakerChange]]:
    return apply_reports(
        state, breaker, [report._replace(generation=state.generation) for report in reports], now
    )


def _remember_all(state: BreakerState, breaker: Breaker, report: CallReport, now: float) -> BreakerState:
    failed = report.outcome is CallOutcome.FAILURE
    seen = (*state.seen, RecordedCall(now, failed, report.slow))[-breaker.window :]
    return replace(state, seen=seen, denials=state.denials if failed else 0)


async def _every_trial_pays(self: Any, permit: Permit, failure: Any) -> bool:
    outcome = provider.outcome_of(failure)
    wait = None if failure.wait is None else failure.wait.total_seconds()
    counted = await permit.ended(outcome, wait=wait)
    return outcome in BAD_OUTCOMES and not counted and not permit.is_trial


async def _wait_for_no_call(self: Any) -> None:
    return


# Held jobs.


def _hold_spent(claim: Claim, reason: str, *, held_by: Holder) -> Requeue:
    return hold(claim, reason, held_by=held_by)._replace(gives_back=False)


async def _wait_in_the_slot(self: Any, spec: Any, request: PermitRequest) -> Permit:
    while True:
        answer = await _ASK(self, spec, request)
        if isinstance(answer, Permit):
            return answer
        await asyncio.sleep(0.5)


def _release_all(
    state: BreakerState, breaker: Breaker, now: float, *, to_backup: bool = False
) -> tuple[BreakerState, int]:
    after, size = release(state, breaker, now, to_backup=to_backup)
    return after, 1_000 if size and lets_through(state) else size


def _release_a_few(
    state: BreakerState, breaker: Breaker, now: float, *, to_backup: bool = False
) -> tuple[BreakerState, int]:
    if state.ramp is not None and state.ramp.size > FIRST_RELEASE:
        return state, 0
    return release(state, breaker, now, to_backup=to_backup)


# Limits and backups.


def _take_what_is_far_off(self: Quota, rate: Rate | None, now: float) -> float:
    if rate is None or self.next_at > now + rate.interval:
        return now
    return max(self.next_at, now)


def _share_with_the_dead(
    shares: Mapping[str, Share], limit: int, worker: str, *, using: int, requested: int, now: float
) -> dict[str, Share]:
    kept = {name: share for name, share in shares.items() if name != worker}
    free = limit - sum(share.calls for share in kept.values())
    count = max(using, min(requested, free))
    return {**kept, worker: Share(count, requested, now + LEASE)} if count or requested else kept


async def _ask_for_one_customer(self: Any, spec: Any, request: PermitRequest) -> Any:
    return await _ASK(self, spec, request._replace(key="customer 0") if request.key else request)


def _share_alone(
    shares: Mapping[str, Share], limit: int, worker: str, *, using: int, requested: int, now: float
) -> dict[str, Share]:
    return {worker: Share(min(limit, max(using, requested)), requested, now + LEASE)}


def _backup_for_the_impatient(state: BreakerState) -> bool:
    return calls_for_backup(state) or (
        state.open_period is not None and state.open_period.cause is OpenCause.LIMITED
    )


BUGS = (
    Bug(
        "late-result-opens",
        "It has answered, so it is back.",
        ("BRK-3",),
        (Swap(provider_link, "apply_reports", _close_for_the_late),),
    ),
    Bug(
        "generation-ignored",
        "A failure is a failure, whenever the call began.",
        ("BRK-4",),
        (Swap(provider_link, "apply_reports", _apply_late_reports),),
    ),
    Bug(
        "old-outcomes-counted",
        "The last six calls are the last six calls.",
        ("BRK-1",),
        (Swap(call_reports, "_record_call", _remember_all),),
    ),
    Bug(
        "trial-slot-never-returned",
        "A worker that took a slot gives it back.",
        ("BRK-3",),
        (Swap(permission, "TRIAL_LEASE", _AN_HOUR),),
    ),
    Bug(
        "trial-costs-an-attempt",
        "It was tried, so it counts.",
        ("BRK-2",),
        (Swap(ProviderCalls, "_report_failure", _every_trial_pays),),
    ),
    Bug(
        "refusal-stops-the-trial-beside-it",
        "The job is held, so its other calls can go as well.",
        (),
        (Swap(ProviderCalls, "_wait_for_other_calls", _wait_for_no_call),),
    ),
    Bug(
        "attempt-burnt-while-open",
        "The worker had it in hand, so that was an attempt.",
        ("BRK-2",),
        (Swap(provider_calls, "hold", _hold_spent),),
    ),
    Bug(
        "hold-keeps-the-slot",
        "It will be back in a moment, so wait for it here.",
        ("BRK-2",),
        (Swap(Admission, "acquire", _wait_in_the_slot),),
    ),
    Bug(
        "stampede-on-closing",
        "It is back: release all jobs.",
        ("BRK-5",),
        (Swap(provider_state, "release", _release_all),),
    ),
    Bug(
        "held-forgotten-after-the-first-step",
        "The first to be released bring the others along.",
        ("BRK-5",),
        (Swap(provider_state, "release", _release_a_few),),
    ),
    Bug(
        "rate-granted-twice",
        "Moments that far off were reserved by a worker that is dead by now.",
        ("BRK-6",),
        (Swap(Quota, "start_time", _take_what_is_far_off),),
    ),
    Bug(
        "share-kept-by-the-dead",
        "What is lent is lent.",
        ("BRK-6",),
        (Swap(limits, "reallocate_share", _share_with_the_dead),),
    ),
    Bug(
        "share-without-the-others",
        "A worker knows best what it needs.",
        ("BRK-6",),
        (Swap(limits, "reallocate_share", _share_alone),),
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
        (Swap(Admission, "acquire", _ask_for_one_customer),),
    ),
    Bug(
        "backup-for-the-impatient",
        "Why wait, if there is another one?",
        ("BRK-6",),
        (Swap(admission, "calls_for_backup", _backup_for_the_impatient),),
    ),
)
