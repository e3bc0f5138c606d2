"""Steps that tests of dead letters in a store take before those that they are about."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast import ErrorClass, Status
from holdfast.core.dead_letters.letter import Cause, LetterState, Step, remediate, triage, validate
from holdfast.core.dead_letters.replay_plan import Phase, Plan
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.failures.failure import fingerprint_of
from holdfast.core.jobs.job import Claim, Submission
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.transitions import Finish, StageWrite, complete, fail
from holdfast.ports import Store
from holdfast.ports.dead_letters import Seen
from holdfast.ports.store import Settled
from holdfast.types import Failure
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import a_claim, claimed

DAY = timedelta(days=1)
POLICY = RetryPolicy(3, Backoff.none())

REPAIR = (triage(Cause.DATA, actor="ada"), remediate("the row is repaired", actor="ada"))
"""The steps that come before a validation."""


def a_failure_at(
    place: str, error_class: ErrorClass = ErrorClass.UPSTREAM_5XX, message: str = "no luck"
) -> Failure:
    """Return what went wrong at some place of the application."""
    failure = a_failure(error_class, message, stack="Traceback")
    return replace(failure, fingerprint=fingerprint_of(error_class, place), context={"place": place})


async def failed(
    store: Store,
    claim: Claim,
    failure: Failure | None = None,
    *stages: StageWrite,
    stage: str | None = None,
) -> Claim:
    """Let a job that is claimed fail for good."""
    end = Finish(claim.id, claim.token, Status.FAILED, failure=failure or a_failure(), stage=stage)
    assert await store.settle("worker", [*stages, end]) == [Settled.WRITTEN] * (len(stages) + 1)
    return claim


async def a_letter(store: Store, job: Submission | None = None, *, failure: Failure | None = None) -> str:
    """Submit a job, claim it, and let it fail; return its id."""
    return (await failed(store, await a_claim(store, job), failure)).id


async def seen(store: Store, *job_ids: str) -> list[Seen]:
    """Look at letters."""
    return [(job_id, (await store.dead_letters.get(job_id)).version) for job_id in job_ids]


async def moved(store: Store, job_id: str, *steps: Step, args: str | None = None) -> None:
    """Take steps with one letter, all of which it allows."""
    assert await store.dead_letters.move(await seen(store, job_id), steps, args=args) == [job_id]


def a_plan(letters: int, token: str = "plan-1", *, phase: Phase = Phase.MADE) -> Plan:
    """Return a plan for a number of letters."""
    return Plan(token, "ada", made_at=0.0, letters=letters, phase=phase)


async def planned(store: Store, *job_ids: str, plan: Plan | None = None) -> Plan:
    """Take letters from new to validated, under one plan."""
    made = plan or a_plan(len(job_ids))
    steps = [*REPAIR, validate("the service knows the key", made.token, actor="ada")]
    assert await store.dead_letters.move(await seen(store, *job_ids), steps, plan=made) == sorted(job_ids)
    return made


async def replayed(
    store: Store, plan: Plan, *, take: int = 9, restart: bool = False, same_deadline: bool = False
) -> list[str]:
    """Replay letters of *plan*, *take* at most; return the jobs that are replayed."""
    row = await store.replay_plans.get(plan.token)
    going = replace(plan, phase=Phase.PACED, restart=restart, same_deadline=same_deadline)
    jobs = await store.replay_plans.advance(row, going, take=take)
    assert jobs is not None
    return jobs


async def a_replay(store: Store, job_id: str, *, plan: Plan | None = None, restart: bool = False) -> Claim:
    """Take one new letter through every step to its replay, and claim its job."""
    assert await replayed(store, await planned(store, job_id, plan=plan), restart=restart) == [job_id]
    return await claimed(store)


async def ended(store: Store, plan: Plan | None = None) -> None:
    """End a plan, whatever its letters do."""
    made = plan or a_plan(1)
    row = await store.replay_plans.get(made.token)
    assert await store.replay_plans.advance(row, replace(made, phase=Phase.DONE)) == []


async def changed(database: Database, sql: str) -> None:
    """Change rows behind the store's back, as a program does that knows nothing of letters; `:` is before each table."""
    if database.url.startswith("sqlite:///"):
        with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as file, file:
            file.execute(sql.replace(":", "holdfast_"))
        return
    connection = await asyncpg.connect(database.url)
    try:
        await connection.execute(sql.replace(":", "holdfast."))
    finally:
        await connection.close()


async def completed(store: Store, claim: Claim) -> None:
    """Complete a job that is claimed."""
    assert await store.settle("worker", [complete(claim, '"done"')]) == [Settled.WRITTEN]


async def state_of(store: Store, job_id: str) -> LetterState:
    """Return the state of a letter."""
    return (await store.dead_letters.get(job_id)).state


async def path_of(store: Store, job_id: str) -> list[LetterState]:
    """Return the states that a letter went through, in order."""
    return [step.state for step in await store.dead_letters.steps(job_id)]


async def a_rich_letter(store: Store, clock: DatabaseClock) -> str:
    """Let a job fail that has all there is: stages, signals, a history, and other arguments by now."""
    claim = await a_claim(store, a_job(name="review", owner="ada", args='{"n":1}', key="k1", deadline=DAY))
    await store.signal(claim.id, "go", '"now"', actor="bob")
    await store.settle(
        "worker",
        [
            a_stage(claim, "fetch", result='"pagé"')._replace(brief_fingerprint="brief"),
            a_stage(claim, "count"),  # stored second, at the same moment: its number says so
            a_stage(claim, "llm", status=StageStatus.STARTED),
            fail(claim, a_failure(), POLICY, roll=0, attempt=1, stage="llm"),
        ],
    )
    await clock.advance(timedelta(minutes=1))
    await store.promote(limit=9)
    again = await claimed(store)
    stages = [a_stage(again, "llm", status=StageStatus.FAILED, attempt=2)]
    await failed(store, again, a_failure_at("shop:review"), *stages, stage="llm")
    await moved(store, claim.id, *REPAIR, args='{"n":2}')
    return claim.id


async def to_archive(
    store: Store, *, older_than: timedelta | None = None, beyond: int | None = None, limit: int = 99
) -> list[str]:
    found = await store.retention.letters_to_archive(older_than=older_than, beyond=beyond, limit=limit)
    assert found == await seen(store, *[job_id for job_id, _ in found])
    return [job_id for job_id, _ in found]


async def archived(store: Store, *job_ids: str) -> list[dict[str, Any]]:
    """Take letters out of the store, and give their records as an archive keeps them."""
    looked = await seen(store, *job_ids)
    records = await store.retention.letter_records(job_ids)
    assert sorted(await store.retention.delete_letters(looked)) == sorted(job_ids)
    kept: list[dict[str, Any]] = json.loads(json.dumps(records))
    return kept


async def whole(store: Store, job_id: str) -> list[object]:
    """Read all that a store knows of a letter and its job, but for ages and the letter's version, which grow."""
    stages = [row._replace(age=0.0) for row in await store.stages([job_id])]
    return [
        replace(await store.dead_letters.get(job_id), version=0),
        await store.dead_letters.steps(job_id),
        await store.dead_letters.original_args(job_id),
        await store.get(job_id),
        await store.events(job_id),
        stages,
        await store.signals([job_id]),
    ]
