"""Strategies for the next command of a submitter, worker, maintenance service or operator.

Jobs, keys and subjects are few, so that commands conflict, and workers misbehave: they write under leases that
they lost, under tokens that they guessed and under other workers' names, and send batches twice. Commands that
change something are likelier than those that do not.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from hypothesis import strategies as st

from holdfast.core.failures.failure import ErrorClass
from holdfast.core.jobs.job import Claim, EventKind, JobFilter, Submission
from holdfast.core.jobs.stages import StageKey, StageStatus
from holdfast.core.jobs.states import ENDED, Status
from holdfast.core.jobs.transitions import (
    Finish,
    Requeue,
    StageWrite,
    Transition,
    cancel,
    complete,
    hold,
    park,
    release,
    time_out,
)
from holdfast.core.providers.holder import Holder
from holdfast.core.strict_json import fingerprint
from tests.builders import STAGE_ARGS, a_failure
from tests.stateful.model import START
from tests.stateful.run_state import Command, RunState, command

MOST_JOBS = 12
"""A few long-lived jobs reach more states than many short-lived ones."""

ALL = 1_000
UNKNOWN_ID = "00000000-0000-7000-8000-ffffffffffff"

WORKERS = ("host:1:a", "host:2:b", "host:3:c")
QUEUES = ("default", "slow")
HOLDERS = (Holder("llm"), Holder("llm", "ada"))
OWNERS = ("", "ada")
LEASES = (timedelta(seconds=10), timedelta(seconds=90))
DELAYS = (None, timedelta(0), timedelta(seconds=5), timedelta(minutes=1))
PAUSES = (timedelta(seconds=4), timedelta(seconds=30), timedelta(minutes=2))
DEADLINES = (None, None, None, timedelta(seconds=20), timedelta(minutes=1))
RESULTS = ("null", '"page"', '{"é":[1,2.5,"🎈"]}')
STAGES = tuple(StageKey(name, call) for name in ("fetch", "llm") for call in ("#1", "#2", "de"))
FAILURES = (
    a_failure(),
    a_failure(ErrorClass.AUTH_DENIED, 'said "no" to é 🎈, 100 % \\ sure', stack="secret"),
)


@cache
def run_states() -> st.SearchStrategy[RunState]:
    """Draw the state of the machine that is running."""
    return st.runner().map(lambda machine: machine.state)


@lru_cache(typed=True)  # making a strategy costs more than drawing from it
def any_of(*values: Any) -> st.SearchStrategy[Any]:
    """Draw one of *values*; a value that is listed twice is twice as likely."""
    return st.sampled_from(values)


@st.composite
def to_begin_with(draw: st.DrawFn) -> Command:
    """Submit a job that is ready."""
    ready = draw(submissions())._replace(queue="default", delay=None, run_at=None)
    return command("submit", [ready._replace(id=draw(run_states()).new_id(0))])


@st.composite
def of_any_actor(draw: st.DrawFn) -> Command:
    """Any command, preferably one that changes something."""
    state = draw(run_states())
    # Readers come first, because a failing example is simplified towards them.
    sources = [
        of_readers,
        of_time,
        of_time,
        of_claimers,
        of_holders,
        of_maintenance,
        of_operators,
        of_controllers,
        of_submitters,
    ]
    sources += [of_claimers] * 4 if state.ready_queues() else []
    sources += [of_holders] * 4 + [of_operators] if state.held() else []
    sources += [of_maintenance] * 4 if any(end <= state.model.now for end in state.ends()) else []
    sources += [of_maintenance] if state.model.holders() else []
    sources += [of_operators] * 2 if state.ids(Status.FAILED) else []
    sources += [of_readers] if state.marked() else []
    sources += [of_late_workers] * 2 if state.cut_off() or state.with_late_results() else []
    chosen: Command = draw(draw(st.sampled_from(sources))())
    return chosen


@st.composite
def of_submitters(draw: st.DrawFn) -> Command:
    """Submit jobs, or repeat an earlier submission, as a client does that got no answer."""
    state = draw(run_states())
    if state.submitted and (len(state.model.jobs) > MOST_JOBS or draw(any_of(False, False, True))):
        return command("submit", draw(st.sampled_from(state.submitted)), again=True)
    name, owner = draw(any_of("greet", "greet", "review")), draw(any_of(*OWNERS))
    drafts = draw(st.lists(submissions(name=name, owner=owner), min_size=1, max_size=3))
    return command("submit", [draft._replace(id=state.new_id(place)) for place, draft in enumerate(drafts)])


@st.composite
def submissions(draw: st.DrawFn, *, name: str = "greet", owner: str = "") -> Submission:
    """Draft a submission; it has no id yet."""
    args = draw(any_of("{}", '{"n":1}'))
    key, subject = draw(any_of(None, None, None, "k", "l")), draw(any_of(None, None, "s"))
    versioned = subject is not None
    wait = draw(any_of(None, None, "delay", "run_at"))
    deadline_at = START + draw(any_of(*PAUSES)) if draw(any_of(False, False, False, True)) else None
    return Submission(
        id="",
        name=name,
        queue=draw(any_of("default", *QUEUES)),
        owner=owner,
        args=args,
        priority=draw(any_of(0, 5, -1)),
        delay=draw(any_of(*DELAYS)) if wait == "delay" else None,
        run_at=START + draw(any_of(*PAUSES)) if wait == "run_at" else None,
        key=key,
        subject=subject,
        version=draw(st.integers(1, 3)) if versioned else None,
        rerun=versioned and draw(st.booleans()),
        strict_keys=draw(st.booleans()),
        fingerprint=fingerprint(args) if key is not None or versioned else None,
        deadline=draw(any_of(*DEADLINES)) if deadline_at is None else None,
        deadline_at=deadline_at,
    )


@st.composite
def of_claimers(draw: st.DrawFn) -> Command:
    """Claim jobs, mostly from queues that have any."""
    ready = draw(run_states()).ready_queues()
    queue = draw(st.sampled_from(ready * 3 + [*QUEUES]))
    limit, lease = draw(st.integers(1, 3)), draw(any_of(*LEASES))
    return command("claim", draw(any_of(*WORKERS)), queue, limit=limit, lease=lease)


@st.composite
def of_holders(draw: st.DrawFn) -> Command:
    """Settle jobs, extend leases, begin attempts: under leases, or under tokens that are not valid."""
    match draw(any_of("one", "one", "one", "many", "again", "extend", "begin")):
        case "one":
            return draw(settling([draw(held_claims().flatmap(changes))]))
        case "many":
            return draw(settling(draw(st.lists(claims().flatmap(changes), max_size=4))))
        case "again":
            return draw(settling(draw(run_states()).settled))
        case "extend":
            held = draw(st.lists(claims(), max_size=3))
            return command("extend", [(claim.id, claim.token) for claim in held], lease=draw(any_of(*LEASES)))
        case _:
            held = draw(st.lists(claims(), max_size=2, unique_by=lambda claim: claim.id))
            return command("begin", [(claim.id, claim.token) for claim in held])


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    """Leases that are held, leases of any time, and guessed tokens: a job that waits has one, too."""
    state = draw(run_states())
    if draw(st.booleans()):
        return draw(held_claims())
    claim = draw(st.sampled_from(state.claims))
    guess = state.model.jobs[claim.id].lease_token
    return claim._replace(token=draw(any_of(claim.token, claim.token, guess, claim.token - 1)))


def held_claims() -> st.SearchStrategy[Claim]:
    """Leases that are held, if there are any; preferably of jobs with a lost lease, a deadline or a cancellation."""
    return run_states().flatmap(
        lambda state: st.sampled_from(state.held() + state.marked() * 3 or state.claims)
    )


def changes(claim: Claim) -> st.SearchStrategy[Transition]:
    """All that a worker may write under a lease."""
    return ends(claim) | stage_writes(claim)


@st.composite
def ends(draw: st.DrawFn, claim: Claim) -> Transition:
    """All ends of a lease. A job fails in a stage only after that stage did."""
    state, lease = draw(run_states()), (claim.id, claim.token)
    match draw(st.sampled_from(_likely_ends(state, claim))):
        case "completed":
            return complete(claim, draw(any_of(*RESULTS)))
        case "failed":
            where = draw(any_of(None, *state.failed_stages(claim.id)))
            return Finish(*lease, Status.FAILED, failure=draw(any_of(None, *FAILURES)), stage=where)
        case "cancelled":
            return cancel(claim)
        case "overdue":
            return time_out(claim)
        case "retry":
            delay, where = draw(any_of(*DELAYS)), draw(any_of(None, "llm[de]"))
            failure = draw(any_of(*FAILURES))
            return Requeue(*lease, EventKind.RETRY, delay=delay, failure=failure, stage=where)
        case kind:
            return draw(returns(claim, kind))


@st.composite
def returns(draw: st.DrawFn, claim: Claim, kind: str) -> Transition:
    """Transitions that requeue a job untouched, to be claimed again or to wait."""
    match kind:
        case "released":
            delay = draw(any_of(*DELAYS))
            # Some have run, and some have not.
            return release(claim, "worker shut down", delay=delay)
        case "parked":
            seen = draw(any_of(claim.signals, len(draw(run_states()).model.sent_signals[claim.id])))
            return park(claim, "waits", delay=draw(any_of(*PAUSES)), seen=seen, awaits=False)
        case _:
            return hold(claim, "its breaker is open", held_by=draw(any_of(*HOLDERS)))


def _likely_ends(state: RunState, claim: Claim) -> list[str]:
    """List the ends of a lease; those that are likelier for this job appear more than once."""
    job = state.model.jobs[claim.id]
    names = [
        "completed",
        "failed",
        "cancelled",
        "retry",
        "released",
        "parked",
        "parked",
        "held",
        "held",
    ]
    names += ["overdue"] if job.deadline_at else []
    names += ["completed", "cancelled", "retry"] * 2 if job.cancel_requested else ["failed", "retry"]
    return names + ["released", "released"] * 2 if job.losses else names


@st.composite
def stage_writes(draw: st.DrawFn, claim: Claim) -> Transition:
    """All writes for a stage: started beside others, done, failed for good."""
    status = draw(any_of(*StageStatus))
    return StageWrite(
        claim.id,
        claim.token,
        draw(any_of(*STAGES)),
        status,
        draw(st.integers(1, 3)),
        STAGE_ARGS,
        result=draw(any_of(*RESULTS)) if status is StageStatus.DONE else None,
        failure=FAILURES[0] if status is StageStatus.FAILED else None,
        provider=draw(any_of(None, "llm")),
    )


@st.composite
def settling(draw: st.DrawFn, batch: Sequence[Transition]) -> Command:
    """Settle *batch* without transitions that not even a misbehaving worker sends."""
    state = draw(run_states())
    sent = [change for change in _first_of_each(batch) if _makes_sense(state, change)]
    return command("settle", draw(any_of(*WORKERS)), sent)


def _first_of_each(batch: Sequence[Transition]) -> Iterable[Transition]:
    """Keep one of two that exclude each other: in one batch a lease ends once, and so does a stage."""
    kept: dict[Any, Transition] = {}
    for change in batch:
        stage = (change.key, change.status is StageStatus.STARTED) if isinstance(change, StageWrite) else None
        kept.setdefault((change.id, change.token, stage), change)
    return kept.values()


def _makes_sense(state: RunState, change: Transition) -> bool:
    """An attempt that is not spent cannot be given back."""
    gives_back = isinstance(change, Requeue) and change.gives_back
    return not gives_back or state.model.jobs[change.id].attempt > 0


@st.composite
def of_maintenance(draw: st.DrawFn) -> Command:
    """Promote due jobs, release held ones, reclaim lost ones and expire late ones, a few or all of them."""
    model, limit = draw(run_states()).model, draw(any_of(1, 2, ALL))
    lost, (due, _), late = model.overdue(), model.parked(), model.late()
    holder = draw(st.sampled_from(model.holders() or HOLDERS))
    held = model.held_by(holder)
    kinds = ["reclaim", "promote", "expire", "release held"]
    kinds += (
        ["reclaim"] * len(lost)
        + ["promote"] * len(due)
        + ["expire"] * len(late)
        + ["release held"] * len(held)
    )
    match draw(st.sampled_from(kinds)):
        case "reclaim":
            return command("reclaim", limit=_fair(limit, [job.lease_expires_at for job in lost]))
        case "promote":
            return command("promote", limit=_fair(limit, [job.retry_after for job in due]))
        case "release held":
            return command("providers.release", holder, limit=_fair(limit, [job.retry_after for job in held]))
        case _:
            return command("expire", limit=_fair(limit, [job.deadline_at for job in late]))


def _fair(limit: int, instants: Sequence[datetime | None]) -> int:
    """Raise *limit* until it divides none that are due at the same instant: their order is not promised."""
    while limit < len(instants) and instants[limit - 1] == instants[limit]:
        limit += 1
    return limit


@st.composite
def of_operators(draw: st.DrawFn) -> Command:
    """Cancel jobs, retry them and accept late results, as their owner or as another one."""
    owner = draw(any_of(None, None, None, *OWNERS))
    match draw(any_of("retry", "retry", "cancel", "cancel", "accept")):
        case "retry":
            return command("retry", draw(jobs(Status.FAILED)), owner=owner)
        case "cancel":
            state = draw(any_of(Status.PROCESSING, Status.PROCESSING, Status.QUEUED))
            return command("cancel", draw(jobs(state)), owner=owner)
        case _:
            return command("accept_late", draw(jobs(Status.FAILED)), owner=owner, meta='{"actor":"ada"}')


@st.composite
def of_late_workers(draw: st.DrawFn) -> Command:
    """Settle after the deadline, or accept a late result."""
    state = draw(run_states())
    late, cut_off = state.with_late_results(), state.cut_off()
    if cut_off and (not late or draw(st.booleans())):
        claim = draw(st.sampled_from(cut_off))
        change = draw(st.just(complete(claim, draw(any_of(*RESULTS)))) | changes(claim))
        return command("settle", draw(any_of(*WORKERS)), [change])
    return command("accept_late", draw(st.sampled_from(late)), owner=None, meta='{"actor":"ada"}')


@st.composite
def of_controllers(draw: st.DrawFn) -> Command:
    """Signal a job, or pause and resume a queue."""
    queue = draw(any_of(*QUEUES))
    match draw(any_of("signal", "signal", "signal", "pause", "resume", "look")):
        case "signal":
            owner, data = draw(any_of(None, None, *OWNERS)), draw(any_of(*RESULTS))
            job = draw(jobs_that_wait() if draw(st.booleans()) else jobs(Status.QUEUED))
            actor = draw(any_of("", "ada"))
            return command("signal", job, draw(any_of("go", "stop")), data, owner=owner, actor=actor)
        case "pause":
            return command("queues.pause", queue, actor="ada", reason=draw(any_of("", "too hot")))
        case "resume":
            return command("queues.resume", queue)
        case _:
            return command("queues.paused")


@st.composite
def of_readers(draw: st.DrawFn) -> Command:
    """Read without changing anything."""
    match draw(any_of("find", "await_ends", "cancel_requests", "providers.holders", "providers.count_held")):
        case "find":
            return command("find", draw(filters()))
        case "providers.holders" | "providers.count_held" as question:
            return command(question)
        case "await_ends":
            return command("await_ends", draw(st.lists(jobs(*ENDED), max_size=3, unique=True)))
        case _:
            jobs_now = draw(run_states()).model.jobs.values()
            holders = [job.leased_by for job in jobs_now if job.cancel_requested and job.leased_by]
            return command("cancel_requests", draw(any_of(*WORKERS, *holders)))


@st.composite
def jobs(draw: st.DrawFn, *statuses: Status) -> str:
    """Ids of jobs in one of *statuses*, if there are any, less often of any job, and sometimes of no job."""
    state = draw(run_states())
    fitting = state.ids(*statuses)
    if fitting and draw(any_of(True, True, False)):
        return draw(st.sampled_from(fitting))
    return draw(st.sampled_from([*state.model.jobs] * 3 + [UNKNOWN_ID]))


def jobs_that_wait() -> st.SearchStrategy[str]:
    """Ids of jobs that wait for a signal or a child, if there are any; else of any."""
    waiting = run_states().map(lambda state: [job.id for job in state.model.jobs.values() if job.waiting])
    return waiting.flatmap(lambda ids: st.sampled_from(ids) if ids else jobs())


def filters() -> st.SearchStrategy[JobFilter]:
    """Filters of `find`."""
    return st.builds(
        JobFilter,
        status=any_of(None, None, *Status),
        name=any_of(None, "greet"),
        owner=any_of(None, *OWNERS),
        queue=any_of(None, *QUEUES),
        limit=any_of(2, 50),
        before=st.none() | jobs(),
    )


@st.composite
def of_time(draw: st.DrawFn) -> Command:
    """Move the clock: by a while, or to the exact end of a wait or a lease."""
    state = draw(run_states())
    later = [state.model.now + pause for pause in PAUSES]
    later += 2 * sorted(end for end in state.ends() if end > state.model.now)
    return command("wait_until", draw(st.sampled_from(later)))
