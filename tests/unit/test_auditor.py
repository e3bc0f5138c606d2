"""Each rule of the simulation's auditor notices the step that it forbids, and lets pass what is allowed."""

from __future__ import annotations

import ast
import inspect
from typing import Any, NamedTuple

import pytest

from tests.simulation import auditor
from tests.simulation.auditor import Commit, Row, step

NOW, LATER, EARLIER = 1_000, 2_000, 500
HOLDER, OTHER = Commit("ann", NOW), Commit("bob", NOW)


def a_job(status: str, **changes: Any) -> Row:
    """A job in its first attempt, as it looks in some state."""
    claimed = status != "queued"
    plain = Row(
        id="job",
        name="plain",
        queue="default",
        priority=0,
        status=status,
        attempt=int(claimed),
        generation=1,
        token=int(claimed),
        worker="ann" if claimed else None,
        lease_ends=LATER if status == "processing" else None,
        retry_after=None,
        cancel_requested=0,
        result=None,
        losses=0,
        waiting=0,
        signals=0,
        pending=0,
        deadline=None,
        timed_out_at=None,
        late_result=None,
    )
    return plain._replace(**changes)


QUEUED, RUNNING, FAILED, DONE = map(a_job, ("queued", "processing", "failed", "completed"))
PARKED = a_job("queued", attempt=1, token=2, retry_after=LATER)
AGAIN = a_job("queued", attempt=1, token=2)
LOST = AGAIN._replace(losses=1)
EXCUSED = AGAIN._replace(excused=1)
RUNNING_AGAIN = a_job("processing", attempt=2, token=3)
SUSPECTED = a_job("processing", attempt=1, token=3, suspicion=1)
WAITING = PARKED._replace(waiting=1)
HELD = PARKED._replace(held_by="model")
LATE = a_job("failed", deadline=EARLIER, timed_out_at=EARLIER)
LATE_RESULT = LATE._replace(late_result="1")


class Step(NamedTuple):
    """A change of a row, who made it, and when its lease was written before."""

    old: Row
    new: Row
    by: Commit = HOLDER
    leased_at: int = EARLIER

    def complaints(self) -> list[str]:
        return list(step(self.old, self.new, self.by, leased_at=self.leased_at))


FORBIDDEN = [
    ("the lease token fell", Step(a_job("processing", token=3), a_job("processing", token=1))),
    ("the generation changed without a retry", Step(QUEUED, QUEUED._replace(generation=2))),
    ("the generation changed without a retry", Step(a_job("queued", generation=2), QUEUED)),
    ("a lease without a token of its own", Step(QUEUED, RUNNING._replace(token=2))),
    ("a step that is not in the graph", Step(DONE, QUEUED._replace(token=DONE.token))),
    ("a step that is not in the graph", Step(QUEUED, a_job("completed", token=0))),
    ("a wish to cancel was forgotten", Step(RUNNING._replace(cancel_requested=1), AGAIN)),
    ("a deadline moved", Step(QUEUED._replace(deadline=LATER), QUEUED._replace(deadline=LATER + 1))),
    ("a job waits and holds a slot", Step(WAITING, a_job("processing", attempt=2, token=3, waiting=1))),
    ("a job waits on, though a signal came", Step(WAITING, WAITING._replace(signals=1))),
    ("an end was undone", Step(DONE, a_job("queued", token=2, generation=1))),
    ("an end was undone", Step(DONE, a_job("queued", token=2, generation=2))),
    ("an end was undone", Step(FAILED, a_job("queued", token=2))),
    ("a late result was replaced", Step(LATE_RESULT, LATE_RESULT._replace(late_result="2"))),
    ("a job completed after its end, and not with the late result that was there", Step(LATE_RESULT, LATE_RESULT._replace(status="completed", result="2"))),
    ("a late result was applied without being accepted", Step(LATE, LATE_RESULT._replace(result="1"))),
    ("a late result was applied without being accepted", Step(RUNNING._replace(deadline=EARLIER), DONE._replace(deadline=EARLIER, timed_out_at=NOW))),
    ("a job timed out before its deadline", Step(RUNNING._replace(deadline=LATER), FAILED._replace(deadline=LATER, timed_out_at=NOW))),
    ("a job completed after its deadline", Step(RUNNING._replace(deadline=EARLIER), DONE._replace(deadline=EARLIER))),
    ("a failed job came back without a new generation, or with the token of a lease", Step(FAILED, a_job("queued", token=1, generation=2))),
    ("a failed job came back with attempts spent", Step(FAILED, a_job("queued", token=2, generation=2, attempt=1))),
    ("a lease changed hands without a new token", Step(RUNNING, RUNNING._replace(worker="bob"))),
    ("a lease was extended by another worker", Step(RUNNING, RUNNING._replace(lease_ends=LATER + 1), OTHER)),
    ("a lease was shortened", Step(RUNNING, RUNNING._replace(lease_ends=LATER - 1))),
    ("a lease was shortened", Step(RUNNING, RUNNING._replace(lease_ends=LATER - 1), leased_at=NOW)),
    ("a lease was taken from a worker before it ran out", Step(RUNNING, AGAIN, OTHER)),
    ("a job was ended under a token that is not its own", Step(RUNNING, DONE._replace(token=3))),
    ("a job was ended by a worker that did not hold it", Step(RUNNING._replace(lease_ends=NOW), DONE, OTHER)),
    ("a lease ended, and its token lives on", Step(RUNNING, a_job("queued", token=1))),
    ("a claim that spent no attempt, or several", Step(QUEUED, RUNNING._replace(attempt=0))),
    ("a claim that spent no attempt, or several", Step(QUEUED, RUNNING._replace(attempt=2))),
    ("a claim in another's name", Step(QUEUED, RUNNING, OTHER)),
    ("a job that lost its worker was claimed without suspicion, or another one with it", Step(LOST, RUNNING_AGAIN)),
    ("a job that lost its worker was claimed without suspicion, or another one with it", Step(EXCUSED, RUNNING_AGAIN._replace(attempt=1))),
    ("a job that lost its worker was claimed without suspicion, or another one with it", Step(QUEUED, RUNNING._replace(attempt=0, suspicion=1))),
    ("a claim that spent no attempt, or several", Step(LOST, SUSPECTED._replace(attempt=2))),
    ("a lease that had run out when it began", Step(QUEUED, RUNNING._replace(lease_ends=NOW))),
    ("a lease that had run out when it began", Step(QUEUED, RUNNING._replace(lease_ends=None))),
    ("a job was made ready before its time", Step(PARKED, AGAIN)),
    ("a job was made ready before its time", Step(PARKED, a_job("processing", attempt=2, token=3))),
    ("a job was made ready before its time", Step(HELD, AGAIN)),
    ("a job ended without having run", Step(QUEUED, a_job("failed", token=0))),
    ("a job blames a deadline without having timed out", Step(RUNNING, FAILED._replace(result='{"error_class": "TIMEOUT"}'))),
]  # fmt: skip

RULES = (auditor._always, auditor._late, auditor._revived, auditor._ended_in_time, auditor._from_processing, auditor._ended_by_right, auditor._from_queued)  # fmt: skip

ALLOWED = {
    "a claim": Step(QUEUED, RUNNING),
    "a claim of a job that lost its worker": Step(LOST, SUSPECTED),
    "a claim of a job that lost its worker by another job's crash": Step(EXCUSED, SUSPECTED._replace(attempt=0)),
    "an extension": Step(RUNNING, RUNNING._replace(lease_ends=LATER + 1)),
    "an extension by a clock that was set back": Step(RUNNING, RUNNING._replace(lease_ends=NOW + 1), leased_at=LATER),
    "a good end": Step(RUNNING, DONE),
    "a failed end": Step(RUNNING, FAILED),
    "a retry": Step(RUNNING, PARKED),
    "a release": Step(RUNNING, a_job("queued", token=2)),
    "a release and a claim by another, in one look": Step(RUNNING, a_job("processing", token=3, worker="bob")),
    "a lease that ran out": Step(RUNNING._replace(lease_ends=NOW), AGAIN, OTHER),
    "a wait that is over": Step(PARKED._replace(retry_after=NOW), AGAIN, OTHER),
    "a wait that is cut short by a wish to cancel": Step(PARKED, AGAIN._replace(cancel_requested=1)),
    "a cancelled job that waited": Step(QUEUED, a_job("cancelled", token=0, attempt=0, worker=None), OTHER),
    "a sweep that ends what is late": Step(RUNNING._replace(deadline=EARLIER), LATE._replace(token=2, timed_out_at=NOW), OTHER),
    "a late result": Step(LATE, LATE_RESULT),
    "a late result that an operator accepts": Step(LATE_RESULT, LATE_RESULT._replace(status="completed", result="1")),
    "a wait that a signal ends": Step(WAITING, AGAIN._replace(signals=1), OTHER),
    "a held job that is released": Step(HELD, AGAIN._replace(let_out_by="model"), OTHER),
    "a failed job that is brought back": Step(FAILED, a_job("queued", token=2, generation=2), OTHER),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "forbidden"), FORBIDDEN)
def test_a_forbidden_step_is_named(rule: str, forbidden: Step) -> None:
    assert rule in forbidden.complaints()


@pytest.mark.parametrize("allowed", ALLOWED.values(), ids=ALLOWED.keys())
def test_an_allowed_step_passes(allowed: Step) -> None:
    assert allowed.complaints() == []


def test_every_rule_about_a_step_has_a_step_that_breaks_it() -> None:
    rules = {
        node.value.value
        for function in RULES
        for node in ast.walk(ast.parse(inspect.getsource(function)))
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Constant)
    }

    assert {rule for rule, _ in FORBIDDEN} - {"a job completed after its deadline"} == rules
