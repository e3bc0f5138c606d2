"""What submitters, workers, sweepers and operators may do next, as Hypothesis draws it.

Jobs, keys and subjects are few, that acts may get in each other's way, and workers are not well behaved: they
write under leases that they lost, under tokens that they guessed and in each other's name, and send things
twice. What makes a difference is likelier than what does not.
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
from holdfast.core.strict_json import fingerprint
from tests.builders import STAGE_ARGS, a_failure
from tests.stateful.model import START
from tests.stateful.scene import Act, Scene, act

MOST_JOBS = 12
"""A few jobs with long lives meet more than many with short ones."""

ALL = 1_000
NOBODYS = "00000000-0000-7000-8000-ffffffffffff"

WORKERS = ("host:1:a", "host:2:b", "host:3:c")
QUEUES = ("default", "slow")
HOLDERS = ("llm", "llm\nada")
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
def scenes() -> st.SearchStrategy[Scene]:
    """Give the scene of the machine that is running."""
    return st.runner().map(lambda machine: machine.scene)


@lru_cache(typed=True)  # making a strategy costs more than drawing from it
def any_of(*values: Any) -> st.SearchStrategy[Any]:
    """Pick one; what stands there twice is twice as likely."""
    return st.sampled_from(values)


@st.composite
def to_begin_with(draw: st.DrawFn) -> Act:
    """Submit a job that is ready."""
    ready = draw(submissions())._replace(queue="default", delay=None, run_at=None)
    return act("submit", [ready._replace(id=draw(scenes()).new_id(0))])


@st.composite
def of_anybody(draw: st.DrawFn) -> Act:
    """What happens next: anything, but rather something that makes a difference."""
    scene = draw(scenes())
    # Onlookers come first, because a failing example is simplified towards them.
    doers = [
        of_onlookers,
        of_time,
        of_time,
        of_claimers,
        of_holders,
        of_sweepers,
        of_operators,
        of_people_who_tell,
        of_submitters,
    ]
    doers += [of_claimers] * 4 if scene.ready_queues() else []
    doers += [of_holders] * 4 + [of_operators] if scene.held() else []
    doers += [of_sweepers] * 4 if any(end <= scene.model.now for end in scene.ends()) else []
    doers += [of_sweepers] if scene.model.holders() else []
    doers += [of_operators] * 2 if scene.ids(Status.FAILED) else []
    doers += [of_onlookers] if scene.marked() else []
    doers += [of_latecomers] * 2 if scene.cut_off() or scene.with_late_results() else []
    next_act: Act = draw(draw(st.sampled_from(doers))())
    return next_act


@st.composite
def of_submitters(draw: st.DrawFn) -> Act:
    """Submit jobs, or send again what was sent before, as somebody does who got no answer."""
    scene = draw(scenes())
    if scene.submitted and (len(scene.model.jobs) > MOST_JOBS or draw(any_of(False, False, True))):
        return act("submit", draw(st.sampled_from(scene.submitted)), again=True)
    name, owner = draw(any_of("greet", "greet", "review")), draw(any_of(*OWNERS))
    drafts = draw(st.lists(submissions(name=name, owner=owner), min_size=1, max_size=3))
    return act("submit", [draft._replace(id=scene.new_id(place)) for place, draft in enumerate(drafts)])


@st.composite
def submissions(draw: st.DrawFn, *, name: str = "greet", owner: str = "") -> Submission:
    """Draft a submission; it has no id yet."""
    args = draw(any_of("{}", '{"n":1}'))
    key, subject = draw(any_of(None, None, None, "k", "l")), draw(any_of(None, None, "s"))
    versioned = subject is not None
    wait = draw(any_of(None, None, "delay", "run_at"))
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
        deadline=draw(any_of(*DEADLINES)),
    )


@st.composite
def of_claimers(draw: st.DrawFn) -> Act:
    """Take jobs, mostly where there are any."""
    ready = draw(scenes()).ready_queues()
    queue = draw(st.sampled_from(ready * 3 + [*QUEUES]))
    limit, lease = draw(st.integers(1, 3)), draw(any_of(*LEASES))
    return act("claim", draw(any_of(*WORKERS)), queue, limit=limit, lease=lease)


@st.composite
def of_holders(draw: st.DrawFn) -> Act:
    """Write what became of jobs, prolong leases, count attempts: all under leases, or what looks like one."""
    match draw(any_of("one", "one", "one", "many", "again", "extend", "begin")):
        case "one":
            return draw(settling([draw(held_claims().flatmap(changes))]))
        case "many":
            return draw(settling(draw(st.lists(claims().flatmap(changes), max_size=4))))
        case "again":
            return draw(settling(draw(scenes()).settled))
        case "extend":
            held = draw(st.lists(claims(), max_size=3))
            return act("extend", [(claim.id, claim.token) for claim in held], lease=draw(any_of(*LEASES)))
        case _:
            held = draw(st.lists(claims(), max_size=2, unique_by=lambda claim: claim.id))
            return act("begin", [(claim.id, claim.token) for claim in held])


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    """Leases that are held, leases of any time, and tokens that somebody guessed: a job that waits has one, too."""
    scene = draw(scenes())
    if draw(st.booleans()):
        return draw(held_claims())
    claim = draw(st.sampled_from(scene.claims))
    guess = scene.model.jobs[claim.id].lease_token
    return claim._replace(token=draw(any_of(claim.token, claim.token, guess, claim.token - 1)))


def held_claims() -> st.SearchStrategy[Claim]:
    """Leases that are held, if there are any; rather those of jobs with a past."""
    return scenes().flatmap(lambda scene: st.sampled_from(scene.held() + scene.marked() * 3 or scene.claims))


def changes(claim: Claim) -> st.SearchStrategy[Transition]:
    """All that a worker may write under a lease."""
    return ends(claim) | stage_writes(claim)


@st.composite
def ends(draw: st.DrawFn, claim: Claim) -> Transition:
    """Every way in which a lease can end. A job fails in a stage only after that stage did."""
    scene, lease = draw(scenes()), (claim.id, claim.token)
    match draw(st.sampled_from(_likely_ends(scene, claim))):
        case "completed":
            return complete(claim, draw(any_of(*RESULTS)))
        case "failed":
            where = draw(any_of(None, *scene.failed_stages(claim.id)))
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
    """Ways in which a job goes back untouched, to be taken again or to wait."""
    match kind:
        case "released":
            delay = draw(any_of(*DELAYS))
            # Some have run, and some have not.
            return release(claim, "worker shut down", delay=delay)
        case "parked":
            seen = draw(any_of(claim.signals, len(draw(scenes()).model.told[claim.id])))
            return park(claim, "waits", delay=draw(any_of(*PAUSES)), seen=seen, awaits=False)
        case _:
            return hold(claim, "its breaker is open", held_by=draw(any_of(*HOLDERS)))


def _likely_ends(scene: Scene, claim: Claim) -> list[str]:
    """Name the ends of a lease, more than once those that are likelier for this job than for another."""
    job = scene.model.jobs[claim.id]
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
    """What can become of a stage: it began beside others, it is done, it failed for good."""
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
def settling(draw: st.DrawFn, batch: Sequence[Transition]) -> Act:
    """Send *batch* without what no worker sends, however confused it is."""
    scene = draw(scenes())
    sent = [change for change in _first_of_each(batch) if _makes_sense(scene, change)]
    return act("settle", draw(any_of(*WORKERS)), sent)


def _first_of_each(batch: Sequence[Transition]) -> Iterable[Transition]:
    """Keep one of two that exclude each other: in one batch a lease ends once, and so does a stage."""
    kept: dict[Any, Transition] = {}
    for change in batch:
        stage = (change.key, change.status is StageStatus.STARTED) if isinstance(change, StageWrite) else None
        kept.setdefault((change.id, change.token, stage), change)
    return kept.values()


def _makes_sense(scene: Scene, change: Transition) -> bool:
    """An attempt that is not spent cannot be given back."""
    gives_back = isinstance(change, Requeue) and change.gives_back
    return not gives_back or scene.model.jobs[change.id].attempt > 0


@st.composite
def of_sweepers(draw: st.DrawFn) -> Act:
    """Wake what is due, let out what is held, reclaim what is lost and end what is late, a few or all of them."""
    model, limit = draw(scenes()).model, draw(any_of(1, 2, ALL))
    lost, (due, _), late = model.overdue(), model.parked(), model.late()
    holder = draw(st.sampled_from(model.holders() or HOLDERS))
    held = model.held_by(holder)
    kinds = ["reclaim", "promote", "expire", "let out"]
    kinds += (
        ["reclaim"] * len(lost) + ["promote"] * len(due) + ["expire"] * len(late) + ["let out"] * len(held)
    )
    match draw(st.sampled_from(kinds)):
        case "reclaim":
            return act("reclaim", limit=_fair(limit, [job.lease_expires_at for job in lost]))
        case "promote":
            return act("promote", limit=_fair(limit, [job.retry_after for job in due]))
        case "let out":
            return act("providers.release", holder, limit=_fair(limit, [job.retry_after for job in held]))
        case _:
            return act("expire", limit=_fair(limit, [job.deadline_at for job in late]))


def _fair(limit: int, instants: Sequence[datetime | None]) -> int:
    """Raise *limit* until it divides none that are due at the same instant: nobody promises which come first."""
    while limit < len(instants) and instants[limit - 1] == instants[limit]:
        limit += 1
    return limit


@st.composite
def of_operators(draw: st.DrawFn) -> Act:
    """Cancel jobs, bring them back and accept what came late, one's own or another's."""
    owner = draw(any_of(None, None, None, *OWNERS))
    match draw(any_of("retry", "retry", "cancel", "cancel", "accept")):
        case "retry":
            return act("retry", draw(jobs(Status.FAILED)), owner=owner)
        case "cancel":
            state = draw(any_of(Status.PROCESSING, Status.PROCESSING, Status.QUEUED))
            return act("cancel", draw(jobs(state)), owner=owner)
        case _:
            return act("accept_late", draw(jobs(Status.FAILED)), owner=owner, meta='{"actor":"ada"}')


@st.composite
def of_latecomers(draw: st.DrawFn) -> Act:
    """Come with a result when the deadline is over, or accept one that came so."""
    scene = draw(scenes())
    late, cut_off = scene.with_late_results(), scene.cut_off()
    if cut_off and (not late or draw(st.booleans())):
        claim = draw(st.sampled_from(cut_off))
        change = draw(st.just(complete(claim, draw(any_of(*RESULTS)))) | changes(claim))
        return act("settle", draw(any_of(*WORKERS)), [change])
    return act("accept_late", draw(st.sampled_from(late)), owner=None, meta='{"actor":"ada"}')


@st.composite
def of_people_who_tell(draw: st.DrawFn) -> Act:
    """Tell a job something, or have a queue rest."""
    queue = draw(any_of(*QUEUES))
    match draw(any_of("signal", "signal", "signal", "pause", "resume", "look")):
        case "signal":
            owner, data = draw(any_of(None, None, *OWNERS)), draw(any_of(*RESULTS))
            told = draw(jobs_that_wait() if draw(st.booleans()) else jobs(Status.QUEUED))
            actor = draw(any_of("", "ada"))
            return act("signal", told, draw(any_of("go", "stop")), data, owner=owner, actor=actor)
        case "pause":
            return act("queues.pause", queue, actor="ada", reason=draw(any_of("", "too hot")))
        case "resume":
            return act("queues.resume", queue)
        case _:
            return act("queues.paused")


@st.composite
def of_onlookers(draw: st.DrawFn) -> Act:
    """Ask without changing anything."""
    match draw(any_of("find", "await_ends", "cancel_requests", "providers.holders", "providers.count_held")):
        case "find":
            return act("find", draw(filters()))
        case "providers.holders" | "providers.count_held" as question:
            return act(question)
        case "await_ends":
            return act("await_ends", draw(st.lists(jobs(*ENDED), max_size=3, unique=True)))
        case _:
            jobs_now = draw(scenes()).model.jobs.values()
            holders = [job.leased_by for job in jobs_now if job.cancel_requested and job.leased_by]
            return act("cancel_requests", draw(any_of(*WORKERS, *holders)))


@st.composite
def jobs(draw: st.DrawFn, *wanted: Status) -> str:
    """Ids of jobs in a *wanted* state, if there are any, less often of any job, and now and then of none."""
    scene = draw(scenes())
    fitting = scene.ids(*wanted)
    if fitting and draw(any_of(True, True, False)):
        return draw(st.sampled_from(fitting))
    return draw(st.sampled_from([*scene.model.jobs] * 3 + [NOBODYS]))


def jobs_that_wait() -> st.SearchStrategy[str]:
    """Ids of jobs that wait for news, if there are any; else of any."""
    waiting = scenes().map(lambda scene: [job.id for job in scene.model.jobs.values() if job.waiting])
    return waiting.flatmap(lambda ids: st.sampled_from(ids) if ids else jobs())


def filters() -> st.SearchStrategy[JobFilter]:
    """What a person may want to see."""
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
def of_time(draw: st.DrawFn) -> Act:
    """It gets later, and the next act happens then: after a while, or at the very end of a wait or a lease."""
    scene = draw(scenes())
    later = [scene.model.now + pause for pause in PAUSES]
    later += 2 * sorted(end for end in scene.ends() if end > scene.model.now)
    return act("wait_until", draw(st.sampled_from(later)))
