"""What must hold at the end of a simulated life: the common invariants, and the answers that callers got."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast import ErrorClass, Status
from holdfast.core.jobs.stages import RESTARTED, StageKey
from holdfast.core.messages.dead_message import INTERNAL_JOBS
from tests import invariants
from tests.simulation import attempt_charges, verdicts
from tests.simulation.account import LOST
from tests.simulation.jobs import BUDGET, CHILD, STRIDES
from tests.simulation.letter_jobs import MAIL, MAIL_BUDGET
from tests.simulation.service_failures import PASSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast_simulator import Entry
    from tests.invariants import World
    from tests.simulation.people import Memory
    from tests.simulation.provider_oracle import Call
    from tests.simulation.verdicts import Skipped
    from tests.simulation.witness import Seen

_PARENTS = {"parent", "family", "braid", "errand"}
_WITH_EFFECTS = {"plain", "order", "fan", "long"}
_PASSING = {failing.means for failing in PASSING} | {ErrorClass.WORKER_LOST}
_BUDGETS = {"ship": BUDGET - 1, MAIL: MAIL_BUDGET}
_TRIES = {ErrorClass.BAD_RESPONSE: 3}
"""Attempts after which a failure of some class is the last, however many there are left."""


def by_number(world: World) -> World:
    """Order all that happened by its number: by a clock that was set back it happened in another order."""
    last = max((event["seq"] for event in world.events), default=0)
    expired = _expired(world)

    def begun(row: dict[str, Any]) -> dict[str, float]:
        return {"created_at": 0, "last_attempt_at": expired.get(row["id"], last + 2) - 1}

    return replace(
        world,
        live=[row | begun(row) for row in world.live],
        ended=[row | begun(row) | {"finished_at": last + 2} for row in world.ended],
        events=[event | {"at": event["seq"]} for event in world.events],
    )


def _expired(world: World) -> dict[str, float]:
    """Give the number of the end that a late result followed, for the jobs that have one: the last lease came before."""
    expired: dict[str, float] = {}
    for event in sorted(world.events, key=lambda event: event["seq"]):
        if event["kind"] == "expired":
            expired[event["id"]] = event["seq"] + 0.5
        elif event["kind"] == "replayed":
            expired.pop(event["id"], None)
    return expired


def broken(
    world: World,
    entries: Sequence[Entry],
    memory: Memory,
    seen: Seen | None = None,
    *,
    skipped: Skipped = lambda since, until: 0.0,
    calls: Sequence[Call] = (),
) -> Iterator[str]:
    """Name every promise that was broken; without *seen*, except those that only witnesses can judge."""
    first_time = {row["id"] for row in world.ended if row["generation"] == 1 and row["name"] in _WITH_EFFECTS}
    completed = first_time & world.with_status(Status.COMPLETED)
    checks: list[Callable[[], None]] = [
        lambda: invariants.nothing_completed_twice(world),
        lambda: invariants.no_effect_doubled(entries),
        lambda: invariants.results_name_logged_effects(world, entries, completed),
        lambda: invariants.the_books_balance(world),
        lambda: what_was_acknowledged_exists(world, memory),
        lambda: what_was_cancelled_stayed_so(world, memory),
        lambda: returned_results_are_stored(world, memory),
        lambda: no_key_was_called_beyond_its_budget(world, entries),
        lambda: failed_jobs_had_spent_their_attempts(world),
        lambda: who_blames_a_lost_worker_has_lost_one(world),
        lambda: children_were_submitted_once(world),
        lambda: parents_returned_their_childrens_results(world),
        lambda: what_was_signalled_is_stored_once(world, memory),
        lambda: what_was_accepted_completed_and_was_followed_once(world, memory),
        lambda: attempt_charges.trials_cost_no_attempt(world, calls),
        lambda: attempt_charges.calls_were_paid_by_their_jobs(world, calls),
    ]
    if seen is not None:
        checks += [
            lambda: failed_stages_had_reason_to(world, seen),
            lambda: killers_were_begun_within_their_budget(world, seen),
            lambda: verdicts.every_failure_was_taken_for_what_it_is(world, seen),
            lambda: verdicts.what_lasts_is_final(world, seen),
            lambda: verdicts.hints_to_wait_were_followed(world, seen, skipped),
        ]
    for check in checks:
        try:
            check()
        except AssertionError as error:
            yield str(error)


def what_was_acknowledged_exists(world: World, memory: Memory) -> None:
    """An acknowledged job is there, whatever happened since."""
    missing = set(memory.acknowledged) - {row["id"] for row in world.jobs}
    assert not missing, f"acknowledged, and gone: {sorted(missing)}"


def what_was_cancelled_stayed_so(world: World, memory: Memory) -> None:
    """A job whose cancellation was acknowledged never runs."""
    wrong = memory.cancelled - world.with_status(Status.CANCELLED)
    assert not wrong, f"acknowledged as cancelled, and they are not: {sorted(wrong)}"


def returned_results_are_stored(world: World, memory: Memory) -> None:
    """A result that a caller got is the one that is stored."""
    stored = {row["id"]: row["result"] for row in world.ended}
    for job_id, result in memory.results.items():
        assert json.loads(stored.get(job_id) or "null") == result, f"job {job_id} returned {result}"


def no_key_was_called_beyond_its_budget(world: World, entries: Sequence[Entry]) -> None:
    """The service saw each key as often as there were attempts, and no more; those given back are not counted.

    Of stages that run side by side, one that is stopped because another failed gets its attempt back.
    """
    given_back = _given_back(world)
    names = {row["id"]: row["name"] for row in world.jobs}
    for key, calls in Counter(entry.key for entry in entries).items():
        job_id, _, stage, _ = (*(key or "").split(":"), "", "", "")[:4]
        budget = BUDGET * 3 if names.get(job_id) == "fan" else _budget_of(stage)
        assert calls <= budget + given_back[job_id], f"{key} was called {calls} times, of {budget}"


def failed_jobs_had_spent_their_attempts(world: World) -> None:
    """A job fails for a reason that lasts, or when the attempts are spent: its own, or those of the stage it failed in.

    One that stands for a message has failed before it ran.
    """
    stages = {(row["id"], str(StageKey(row["name"], row["call"]))): row["attempt"] for row in world.stages}
    for row in world.ended:
        if _failed_for_now(row) and row["name"] not in INTERNAL_JOBS:
            attempt = stages.get((row["id"], row["stage"]), 0) if row["stage"] else row["attempt"]
            last = _may_be_last(attempt, row)
            assert last, f"job {row['id']} failed with {_class(row)} in attempt {attempt}"


def who_blames_a_lost_worker_has_lost_one(world: World) -> None:
    """A job that failed because its workers were lost has lost one."""
    lost = _lost(world)
    for row in world.ended:
        blames = row["status"] == "failed" and _class(row) is ErrorClass.WORKER_LOST
        assert not blames or lost[row["id"]], f"job {row['id']} failed as if it had lost a worker"


def failed_stages_had_reason_to(world: World, seen: Seen) -> None:
    """A stage that failed for now has failed, or lost its worker, as often as its budget allows: none paid for another."""
    lost = _lost(world)
    for row in world.ended:
        if _failed_for_now(row) and row["stage"] is not None:
            name, _, call = row["stage"].rstrip("]").partition("[")
            failed = seen.failed[f"{row['id']}:{row['generation']}:{name}:{call or '#1'}"]
            tried = failed + lost[row["id"]]
            assert tried >= _tries(row), f"stage {row['stage']} of {row['id']} failed after {tried} attempts"


def killers_were_begun_within_their_budget(world: World, seen: Seen) -> None:
    """A job that takes its worker down each time is begun as often as its attempts allow, and no more."""
    given_back = _given_back(world)
    numbers = {row["id"]: json.loads(row["args"]).get("number", 0) for row in world.payloads}
    for row in world.jobs:
        if row["name"] == "killer":
            begun = seen.begun[f"{row['id']}:{row['generation']}"]
            # One that stores a stage each time may lose two workers for each attempt.
            budget = BUDGET * (2 if numbers[row["id"]] % 4 == STRIDES else 1)
            assert begun <= budget + given_back[row["id"]], f"killer {row['id']} was begun {begun} times"


def children_were_submitted_once(world: World) -> None:
    """What a job submits is submitted once, however often it runs, in all generations that keep its finished stages."""
    names = {row["id"]: row["name"] for row in world.jobs}
    restarted = {row["id"] for row in world.stages if row["name"] == RESTARTED}
    origins = {row["id"]: row["generation"] if row["id"] in restarted else 1 for row in world.jobs}
    numbers = {row["id"]: json.loads(row["args"]).get("number", 0) for row in world.payloads}
    allowed: Counter[int] = Counter()
    for job_id, name in names.items():
        allowed[numbers[job_id] + CHILD] += origins[job_id] if name in _PARENTS else 0
    children = Counter((names[job_id], number) for job_id, number in numbers.items() if number < 0)
    for (name, number), times in children.items():
        assert times <= allowed[number], f"child {name}({number}) was submitted {times} times"


def parents_returned_their_childrens_results(world: World) -> None:
    """A job that waited for others has completed with what each of them is stored to have returned."""
    ends = {row["id"]: row for row in world.ended if row["generation"] == 1}
    for row in world.ended:
        if row["name"] in ("family", "braid") and row["status"] == Status.COMPLETED:
            results = json.loads(row["result"])[0]
            assert len(results) == 2, f"{row['name']} {row['id']} returned {results}"
            for child in results.keys() & ends.keys():  # one that failed may have been retried since
                stored = json.loads(ends[child]["result"] or "null")
                assert results[child] in (stored, "not yet"), (
                    f"{row['name']} {row['id']} returned {results[child]}, {child} {stored}"
                )


def what_was_signalled_is_stored_once(world: World, memory: Memory) -> None:
    """A signal that was acknowledged is stored, and stored once."""
    stored = Counter((json.loads(row["data"]), row["id"]) for row in world.signals)
    missing = [word for word, job_id in memory.signalled.items() if not stored[word, job_id]]
    assert not missing, f"acknowledged, and gone: {missing}"
    doubled = [said for said, times in stored.items() if times > 1]
    assert not doubled, f"said once, and stored twice: {doubled}"


def what_was_accepted_completed_and_was_followed_once(world: World, memory: Memory) -> None:
    """A late result is accepted once, and with it the one job is stored that makes something of it."""
    completed = {row["id"]: row for row in world.ended if row["status"] == Status.COMPLETED}
    twice = [job_id for job_id, times in Counter(memory.accepted).items() if times > 1]
    assert not twice, f"accepted twice: {twice}"
    names = {row["id"]: row["name"] for row in world.jobs}
    followers = Counter(
        args["job_id"]
        for row in world.payloads
        if names[row["id"]] == "recompute" and (args := json.loads(row["args"]))
    )
    for job_id in memory.accepted:
        assert job_id in completed, f"job {job_id} was accepted, and has not completed"
    late = [job_id for job_id, row in completed.items() if row["timed_out_at"] and row["name"] == "dogged"]
    assert followers == Counter(late), f"{followers} follow {late}"


def _given_back(world: World) -> Counter[str]:
    """How often each job went back to its queue through no fault of its own."""
    return Counter(
        event["id"]
        for event in world.events
        if event["kind"] in ("parked", "held")
        or (event["kind"] == "queued" and (_reason(event) != LOST or _is_excused(event)))
    )


def _lost(world: World) -> Counter[str]:
    """How often each job lost its worker."""
    return Counter(
        event["id"] for event in world.events if event["kind"] == "queued" and _reason(event) == LOST
    )


def _is_excused(event: dict[str, Any]) -> bool:
    return bool(json.loads(event["meta"]).get("excused"))


def _reason(event: dict[str, Any]) -> str | None:
    reason: str | None = json.loads(event["meta"]).get("reason")
    return reason


def _budget_of(stage: str) -> int:
    return _BUDGETS.get(stage, BUDGET)


def _budget(row: dict[str, Any]) -> int:
    """How many attempts there are for what a job failed in: a stage of it, or itself."""
    return _budget_of((row["stage"] or "").partition("[")[0])


def _tries(row: dict[str, Any]) -> int:
    """How many attempts a job's failure must have taken: all that there are, or as many as its class is worth."""
    return min(_budget(row), _TRIES.get(_class(row), BUDGET))


def _may_be_last(attempt: int, row: dict[str, Any]) -> bool:
    """Whether a job may have failed in this attempt.

    One that lost its last worker is claimed once more, to be ended, and that is no attempt. One that stored stages in
    between has lost two workers in a row for each of its attempts.
    """
    if _class(row) is ErrorClass.WORKER_LOST:
        return attempt >= _budget(row) or row["losses"] >= 2 * BUDGET
    return _tries(row) <= attempt <= _budget(row)


def _class(row: dict[str, Any]) -> ErrorClass:
    return ErrorClass(json.loads(row["failure"])["error_class"])


def _failed_for_now(row: dict[str, Any]) -> bool:
    """Whether a job failed with a failure that another attempt might have overcome."""
    return row["status"] == "failed" and _class(row) in _PASSING
