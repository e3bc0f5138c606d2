"""What must hold after any fault, checked from the tables and from the service's own log.

`read_world` reads a whole database, of either store, into plain values; every other function here is
one claim about them, and names those that break it. None of them asks the engine what it believes.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from holdfast.core.jobs.stages import RESTARTED, StageKey
from holdfast.core.jobs.states import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast_simulator import Entry

_TABLES = {
    "live": ("jobs", "id, name, status, attempt, generation, lease_token, losses, created_at, last_attempt_at, "
             "leased_by, lease_expires_at, retry_after"),
    "ended": ("finished", "id, name, status, attempt, generation, lease_token, losses, created_at, last_attempt_at, "
              "leased_by, finished_at, result, failure, stage, deadline_at, timed_out_at, timed_out_token, late_result"),
    "payloads": ("payloads", "job_id AS id, args"),
    "stages": ("stages", "job_id AS id, name, call, status, attempt, generation, lease_token, result"),
    "events": ("job_events", "job_id AS id, seq, at, kind, meta"),
    "signals": ("signals", "job_id AS id, number, name, data"),
}  # fmt: skip

_HOLDERS = "SELECT id, leased_by FROM {}jobs"
_LEASES = f"{_HOLDERS} WHERE leased_by IS NOT NULL"
_WAITING = "SELECT queue, count(*) FROM {}jobs WHERE status = 'queued' GROUP BY queue"
_COMPLETED = "SELECT queue, count(*) FROM {}finished WHERE status = 'completed' GROUP BY queue"

AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.OperationalError)
"""What a read raises while the database is not available."""

_LEADS_TO = {
    "queued": Status.QUEUED,
    "retry": Status.QUEUED,
    "replayed": Status.QUEUED,
    "parked": Status.QUEUED,
    "held": Status.QUEUED,
    "processing": Status.PROCESSING,
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    "expired": Status.FAILED,
    "cancelled": Status.CANCELLED,
}


_EDGES = {
    Status.QUEUED: {Status.PROCESSING, Status.FAILED, Status.CANCELLED},
    Status.PROCESSING: {Status.QUEUED, Status.COMPLETED, Status.FAILED, Status.CANCELLED},
    Status.COMPLETED: set(),
    Status.FAILED: {Status.QUEUED, Status.COMPLETED},
    Status.CANCELLED: set(),
}
"""The state graph, stated a second time: an edge added to the engine's graph by mistake is detected."""


@dataclass(frozen=True)
class World:
    """Every row of a database, by table. Instants compare with each other, whatever their type."""

    live: list[dict[str, Any]]
    ended: list[dict[str, Any]]
    payloads: list[dict[str, Any]]
    stages: list[dict[str, Any]]
    events: list[dict[str, Any]]
    signals: list[dict[str, Any]]

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, live and ended."""
        return self.live + self.ended

    def with_status(self, status: Status) -> set[str]:
        """The ids of the jobs in one state."""
        return {row["id"] for row in self.jobs if row["status"] == status}


async def read_world(url: str) -> World:
    """Read all that the database at *url* holds, in one snapshot."""
    if url.startswith("sqlite:///"):
        return World(**_read_sqlite(url.removeprefix("sqlite:///")))
    return World(**await _read_postgres(url))


async def read_leases(url: str) -> dict[str, str]:
    """Read who holds which job: the worker's name by the job's id."""
    return dict(await _pairs(url, _LEASES))


async def read_holders(url: str) -> dict[str, str | None]:
    """Read the holder of each live job; `None` while it waits."""
    return dict(await _pairs(url, _HOLDERS))


async def read_waiting(url: str) -> dict[str, int]:
    """Count the jobs that wait, by their queue."""
    return dict(await _pairs(url, _WAITING))


async def read_completed(url: str) -> dict[str, int]:
    """Count the jobs that have completed, by their queue."""
    return dict(await _pairs(url, _COMPLETED))


async def _pairs(url: str, query: str) -> list[tuple[str, Any]]:
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(query.format("holdfast_")).fetchall()
    live = await asyncpg.connect(url)
    try:
        return [(str(job_id), worker) for job_id, worker in await live.fetch(query.format("holdfast."))]
    finally:
        await live.close()


def _read_sqlite(path: str) -> dict[str, list[dict[str, Any]]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        return {
            name: [dict(row) for row in connection.execute(f"SELECT {columns} FROM holdfast_{table}")]
            for name, (table, columns) in _TABLES.items()
        }


async def _read_postgres(dsn: str) -> dict[str, list[dict[str, Any]]]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return {
                name: [
                    {**row, "id": str(row["id"])}
                    for row in await connection.fetch(f"SELECT {columns} FROM holdfast.{table}")
                ]
                for name, (table, columns) in _TABLES.items()
            }
    finally:
        await connection.close()


def every_acknowledged_job_completed(world: World, acknowledged: Collection[str]) -> None:
    """Every acknowledged job exists and has completed."""
    known = {row["id"] for row in world.jobs}
    missing = set(acknowledged) - known
    assert not missing, f"{len(missing)} acknowledged jobs are gone: {_some(missing)}"
    # A submission that was not acknowledged is promised nothing: its job may be in any state, or missing.
    wrong = set(acknowledged) - world.with_status(Status.COMPLETED)
    assert not wrong, f"{len(wrong)} acknowledged jobs did not complete: {_some(wrong)}"


def nothing_completed_twice(world: World) -> None:
    """A job ends once, and each of its stages is done once; only a failed end may have been undone."""
    ends = Counter(row["id"] for row in world.ended)
    assert not _twice(ends), f"ended twice: {_some(_twice(ends))}"
    both = {row["id"] for row in world.live} & set(ends)
    assert not both, f"live and ended at once: {_some(both)}"
    done = Counter((row["id"], row["name"], row["call"]) for row in world.stages if row["status"] == "done")
    assert not _twice(done), f"stages done twice: {_some(_twice(done))}"
    undone = [row["id"] for row in world.events if row["kind"] in {"completed", "cancelled"}]
    assert not undone, f"ended for good, and live again after that: {_some(undone)}"


def no_effect_doubled(entries: Iterable[Entry]) -> None:
    """Under one key the service did its work at most once."""
    effects = Counter(entry.key for entry in entries if entry.effect_id is not None)
    unkeyed = effects.pop(None, 0)
    assert unkeyed == 0, f"{unkeyed} effects had no key"
    assert not _twice(effects), f"effects that took place twice: {_some(_twice(effects))}"


def results_name_logged_effects(world: World, entries: Iterable[Entry], jobs: Collection[str]) -> None:
    """The result of each job names the effects that the service logged under the job's own keys, and no others.

    Parts of a result may be signed with a process id: `eff_000001@4711`.
    """
    effects: defaultdict[str, list[str]] = defaultdict(list)
    for entry in entries:
        if entry.effect_id is not None:
            effects[_job_of(entry.key)].append(entry.effect_id)
    selected = set(jobs)
    results = {row["id"]: _effects_in(row["result"]) for row in world.ended if row["id"] in selected}
    wrong = {job_id: named for job_id, named in results.items() if named != sorted(effects[job_id])}
    assert not wrong, f"{len(wrong)} results are not what took place: {_some(wrong.items())}"


def attempts_stay_within(budget: int, world: World, entries: Iterable[Entry] = ()) -> None:
    """No job was begun more often than *budget* allows, by its row or by what the service saw under a key.

    A job whose last worker was lost is claimed once more, to be ended without being run.
    """
    for row in world.jobs:
        allowed = budget + 1 if _failed_as(row, "WORKER_LOST") else budget
        assert row["attempt"] <= allowed, f"job {row['id']} is in attempt {row['attempt']}, of {budget}"
    calls = Counter(entry.key for entry in entries)
    over = {key: count for key, count in calls.items() if count > budget}
    assert not over, f"called more often than {budget} times: {_some(over.items())}"


def leases_belong_to_running_jobs(world: World) -> None:
    """A job is leased exactly while it is processing; what waits for its time is queued."""
    for row in world.live:
        running = row["status"] == Status.PROCESSING
        leased = (row["leased_by"] is not None, row["lease_expires_at"] is not None)
        assert leased == (running, running), f"job {row['id']} is {row['status']}, its lease is {leased}"
        assert not (running and row["retry_after"]), f"job {row['id']} runs, and waits for its time"


def counts_conserve(world: World) -> None:
    """Every job that was ever stored is live or ended, with its arguments; no row belongs to no job."""
    stored = Counter(row["id"] for row in world.payloads)
    known = Counter(row["id"] for row in world.jobs)
    assert stored == known, f"arguments and jobs differ: {_some((stored - known) + (known - stored))}"
    strays = {row["id"] for row in world.stages + world.events} - set(known)
    assert not strays, f"stages or events of no job: {_some(strays)}"


def histories_follow_the_graph(world: World) -> None:
    """In the order of its events, each job followed the edges of the state graph to its present state."""
    for row, kinds in _histories(world):
        walked = [_LEADS_TO[kind] for kind in kinds]
        astray = [f"{one} to {next_}" for one, next_ in pairwise(walked) if next_ not in _EDGES[one]]
        assert not astray, f"job {row['id']} went from {', '.join(astray)}: {kinds}"
        assert walked[-1] == row["status"], (
            f"job {row['id']} is {row['status']}, but its history ends {kinds}"
        )


def every_lease_is_in_the_history(world: World) -> None:
    """A claim raises the token by one, and so does its end before the job's: the token counts the claims."""
    for row, kinds in _histories(world):
        claims = (row["lease_token"] + 1) // 2
        assert kinds.count("processing") == claims, (
            f"job {row['id']} had {claims} leases, its history: {kinds}"
        )


def every_replay_is_in_the_history(world: World) -> None:
    """A job is replayed only after it failed, each time as a new generation, and its history records both."""
    for row, kinds in _histories(world):
        replays, accepted = row["generation"] - 1, _was_accepted(row)
        failures = replays + (row["status"] == Status.FAILED) + accepted
        recorded = (kinds.count("failed") + kinds.count("expired"), kinds.count("replayed"))
        assert recorded == (failures, replays), (
            f"generation {row['generation']} of {row['id']}, its history: {kinds}"
        )


def failed_stages_are_on_record(world: World) -> None:
    """A job that failed in a stage has that stage stored, as failed."""
    failed = {(row["id"], _stage_text(row)) for row in world.stages if row["status"] == "failed"}
    for row in world.ended:
        recorded = row["stage"] is None or (row["id"], row["stage"]) in failed
        assert recorded, f"job {row['id']} failed in stage {row['stage']}, which is not on record"


def stages_were_written_under_a_lease(world: World) -> None:
    """Each stage bears the token of a lease that its job really had: leases are the odd tokens."""
    tokens = {row["id"]: row["lease_token"] for row in world.jobs}
    for row in [
        row for row in world.stages if row["name"] != RESTARTED
    ]:  # a replay writes that one, and no worker
        token = row["lease_token"]
        fits = token % 2 == 1 and token <= tokens[row["id"]]
        assert fits, f"stage {row['name']} of {row['id']} has token {token}, the job {tokens[row['id']]}"


def signed_results_are_from_the_holder(world: World) -> None:
    """What is signed with a process id was written by the worker that held the lease it was written under."""
    workers = _workers(world)
    for row in world.stages + world.ended:
        pid = _signature(row["result"])
        holder = workers[row["id"]][(row["lease_token"] - 1) // 2] if pid else None
        assert pid == holder, (
            f"{row['name']} of {row['id']} was written by {pid}, but {holder} held the lease"
        )


def deadlines_were_kept(world: World) -> None:
    """A job that ended after its deadline was cancelled or timed out, and says when and why; none times out before."""
    for row in world.ended:
        late = row["deadline_at"] is not None and row["finished_at"] >= row["deadline_at"]
        timed_out = row["timed_out_at"] is not None
        assert timed_out or not late or row["status"] == Status.CANCELLED, (
            f"{row['id']} ended after its deadline"
        )
        if timed_out:
            assert row["timed_out_at"] >= row["deadline_at"], f"job {row['id']} timed out before its deadline"
            assert _was_accepted(row) or _failed_as(row, "TIMEOUT"), (
                f"job {row['id']} timed out as {row['failure']}"
            )


def late_results_were_applied_by_people_only(world: World) -> None:
    """A job that has timed out is completed only by an operator who accepts the late result; the history names the operator."""
    accepted = Counter(event["id"] for event in world.events if event["kind"] == "accepted")
    for row in world.ended:
        times = accepted.pop(row["id"], 0)
        assert times == _was_accepted(row), (
            f"job {row['id']} is {row['status']}, and was accepted {times} times"
        )
        if times:
            assert row["result"] == row["late_result"], f"job {row['id']} completed with another result"
    assert not accepted, f"accepted, and not ended: {_some(accepted)}"


def late_results_are_from_the_last_holder(world: World) -> None:
    """A late result was written by the worker whose lease the deadline ended."""
    workers = _workers(world)
    for row in world.ended:
        pid = _signature(row["late_result"])
        holder = workers[row["id"]][(row["timed_out_token"] - 1) // 2] if pid else None
        assert pid == holder, f"the late result of {row['id']} is {pid}'s, but {holder} held the lease"


def signals_were_taken_once(world: World) -> None:
    """Each wait of a job took a signal that was sent to it, in order, and no two waits took the same.

    A wait that ran out begins anew when the job is retried, and then comes after those that did not.
    """
    sent = {(row["id"], row["number"]): (row["name"], json.loads(row["data"])) for row in world.signals}
    taken: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row in sorted(world.stages, key=lambda row: (row["generation"], _call_number(row["call"]))):
        signal = json.loads(row["result"] or "{}") if row["name"].startswith("@signal ") else {}
        if "number" in signal:
            name = row["name"].removeprefix("@signal ")
            known = sent.get((row["id"], signal["number"]))
            assert known == (name, signal["data"]), f"job {row['id']} took {signal}, and was sent {known}"
            taken[row["id"], name].append(signal["number"])
    wrong = {job_id: numbers for job_id, numbers in taken.items() if numbers != sorted(set(numbers))}
    assert not wrong, f"signals taken twice or out of order: {_some(wrong.items())}"


class Damage(NamedTuple):
    """What must be zero: acknowledged jobs that are lost, second completions, second effects under a key."""

    lost: int
    double_completions: int
    keyed_duplicates: int


def damage(world: World, entries: Iterable[Entry], acknowledged: Collection[str]) -> Damage:
    """Count it."""
    completions = Counter(row["id"] for row in world.ended if row["status"] == Status.COMPLETED)
    effects = Counter(entry.key for entry in entries if entry.effect_id is not None and entry.key is not None)
    return Damage(len(set(acknowledged) - completions.keys()), len(_twice(completions)), len(_twice(effects)))


def all_hold(world: World, entries: Iterable[Entry], *, acknowledged: Collection[str], budget: int) -> None:
    """Check every invariant that a run without cancelled or failed jobs must keep."""
    seen = list(entries)
    every_acknowledged_job_completed(world, acknowledged)
    nothing_completed_twice(world)
    no_effect_doubled(seen)
    results_name_logged_effects(world, seen, world.with_status(Status.COMPLETED))
    attempts_stay_within(budget, world, seen)
    the_books_balance(world)


def the_books_balance(world: World) -> None:
    """Check the invariants of the rows alone, whatever the jobs' states."""
    leases_belong_to_running_jobs(world)
    counts_conserve(world)
    histories_follow_the_graph(world)
    every_lease_is_in_the_history(world)
    every_replay_is_in_the_history(world)
    failed_stages_are_on_record(world)
    stages_were_written_under_a_lease(world)
    signed_results_are_from_the_holder(world)
    deadlines_were_kept(world)
    late_results_were_applied_by_people_only(world)
    late_results_are_from_the_last_holder(world)
    signals_were_taken_once(world)


def _was_accepted(row: Mapping[str, Any]) -> bool:
    """Whether an operator accepted a late result."""
    return row["status"] == Status.COMPLETED and row.get("timed_out_at") is not None


def _call_number(call: str) -> int:
    """The number of a call that is identified by its position; 0 for others."""
    return int(call.removeprefix("#")) if call.startswith("#") else 0


def _workers(world: World) -> dict[str, list[str]]:
    """For each job the process ids of its workers, one for each lease, in order."""
    workers: defaultdict[str, list[str]] = defaultdict(list)
    for event in sorted(world.events, key=lambda event: event["seq"]):
        if event["kind"] == "processing":
            workers[event["id"]].append(_pid_of(json.loads(event["meta"])["worker"]))
    for row in world.jobs:
        if row["leased_by"] is not None:
            workers[row["id"]].append(_pid_of(row["leased_by"]))
    return workers


def _stage_text(row: Mapping[str, Any]) -> str:
    """A stage as a job's row names it."""
    return str(StageKey(row["name"], row["call"]))


def _pid_of(worker: str) -> str:
    return worker.split(":")[1]


def _signature(result: str | None) -> str | None:
    """The process id in a signed result, or in the last part of one."""
    value = json.loads(result or "null")
    last = value[-1] if isinstance(value, list) and value else value
    return last.rpartition("@")[2] if isinstance(last, str) and "@" in last else None


def _effects_in(result: str) -> list[str]:
    names = [part.partition("@")[0] for part in json.loads(result)]
    return sorted(name for name in names if name.startswith("eff_"))


def _histories(world: World) -> Iterable[tuple[dict[str, Any], list[str]]]:
    """Each job with the kinds of its events in order: stored ones, and those that its row implies."""
    stored: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in sorted(world.events, key=lambda event: event["seq"]):
        stored[event["id"]].append(event)
    for row in world.jobs:
        events = [(row["created_at"], "queued")]
        events += [(event["at"], event["kind"]) for event in stored[row["id"]] if event["kind"] in _LEADS_TO]
        if row["leased_by"] is not None:
            events.append((row["last_attempt_at"], "processing"))
        if "finished_at" in row:
            events.append((row["finished_at"], row["status"]))
        yield row, [kind for _, kind in sorted(events, key=lambda entry: entry[0])]


def _failed_as(row: Mapping[str, Any], error_class: str) -> bool:
    failure = row.get("failure")
    return failure is not None and json.loads(failure)["error_class"] == error_class


def _job_of(key: str | None) -> str:
    return (key or "").partition(":")[0]


def _twice(counts: Counter[Any]) -> list[Any]:
    return [name for name, count in counts.items() if count > 1]


def _some(things: Iterable[Any]) -> str:
    return ", ".join(str(thing) for thing in list(things)[:5])
