"""What was promised, and what happened: each promise is one function of the evidence.

A promise that was not tested counts as broken: a run in which no worker was killed shows nothing about kills.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from demo.evidence import Evidence, Finding, Place, finding, generation_of, place_of
from holdfast_simulator import Entry

RAMP_FIRST = 3
RAMP_EVERY = timedelta(seconds=2)
"""The number of held jobs that are released first when a provider is back, and the time after which it doubles."""

MASK = re.compile(r"\[[a-z]+:[0-9a-f]{8}…\]")
"""What replaces a secret: its kind, and a keyed hash."""


def findings(evidence: Evidence) -> list[Finding]:
    """Check every promise."""
    checks = (
        every_job_completes,
        no_job_is_lost,
        no_effect_takes_place_twice,
        results_are_what_took_place,
        kills_cost_no_job,
        dead_letters_are_repaired,
        the_others_wait_for_the_canary,
        replays_go_on_where_it_failed,
        dead_letters_contain_no_secret,
        finished_stages_stay_finished,
        the_same_key_is_the_same_job,
        attempts_stay_within_budget,
        waits_that_were_asked_for_are_kept,
        held_jobs_spend_no_attempt,
        other_work_goes_on,
        the_backlog_goes_out_in_a_ramp,
    )
    return [check(evidence) for check in checks]


def exit_code(found: Iterable[Finding]) -> int:
    """0 if every promise was kept, else 1."""
    return 0 if all(each.holds for each in found) else 1


def every_job_completes(evidence: Evidence) -> Finding:
    """Every job that was submitted completes."""
    undone = evidence.submitted.keys() - evidence.completed
    submitted = len(evidence.submitted)
    return finding(
        "Every submitted job completes",
        f"submitted {submitted:,}, completed {submitted - len(undone):,}",
        undone,
        tested=submitted,
    )


def no_job_is_lost(evidence: Evidence) -> Finding:
    """The database has each job that was acknowledged, and no others."""
    known, submitted = Counter(row.id for row in evidence.books.jobs), Counter(evidence.submitted)
    lost = evidence.submitted.keys() - known.keys()
    return finding(
        "No job is lost or made up",
        f"lost {len(lost)}, made up {len(known.keys() - submitted.keys())}",
        lost | (known.keys() - submitted.keys()) | {job_id for job_id, rows in known.items() if rows > 1},
    )


def no_effect_takes_place_twice(evidence: Evidence) -> Finding:
    """By the provider's log, no stage of any job took effect twice, however often it was called."""
    effects = Counter(place_of(entry.key) for entry in evidence.calls if entry.effect_id is not None)
    doubled = {place for place, count in effects.items() if count > 1}
    repeats = sum(entry.duplicate_of is not None and entry.effect_id is None for entry in evidence.calls)
    return finding(
        "No effect takes place twice",
        f"duplicate effects {len(doubled)} of {effects.total():,}; {repeats} repeats recognised",
        doubled,
        tested=repeats,
    )


def results_are_what_took_place(evidence: Evidence) -> Finding:
    """Every effect that was due took place, and a job's stored result names its own, in their order."""
    effects = {
        place_of(entry.key): entry.effect_id for entry in evidence.calls if entry.effect_id is not None
    }
    results = {row.id: json.loads(row.result or "null") for row in evidence.books.jobs}
    wrong = {
        job_id
        for job_id in evidence.completed & evidence.submitted.keys()
        if results[job_id] != [effects.get(Place(job_id, stage)) for stage in evidence.submitted[job_id]]
    }
    missing, stray = evidence.expected - effects.keys(), effects.keys() - evidence.expected
    return finding(
        "Results name what took place",
        f"missing effects {len(missing)}, stray {len(stray)}, wrong results {len(wrong)}",
        wrong | missing | stray,
        tested=effects,
    )


def kills_cost_no_job(evidence: Evidence) -> Finding:
    """The jobs of a killed worker were reclaimed, and completed."""
    held = frozenset().union(*(kill.held for kill in evidence.kills))
    reclaimed = {row.job_id for row in evidence.books.events if row.meta.get("reason") == "lease lost"}
    dropped = held - (evidence.completed & reclaimed)
    useful = sum(bool(kill.held) for kill in evidence.kills)
    return finding(
        "kill -9 costs time, not jobs",
        f"worker kills survived {useful}; of {len(held)} jobs held, dropped {len(dropped)}",
        dropped,
        tested=evidence.kills_planned > 0 and useful == evidence.kills_planned,
    )


def dead_letters_are_repaired(evidence: Evidence) -> Finding:
    """Each job that failed for good left a dead letter; each of those was replayed once, and its job has completed."""
    letters = {row.job_id: row for row in evidence.books.letters}
    repaired = {
        job_id
        for job_id, row in letters.items()
        if (row.state, row.replays) in {("verified", 1), ("closed", 1)} and job_id in evidence.completed
    }
    corrected = {job_id for job_id, row in letters.items() if row.corrected}
    return finding(
        "Dead letters come back to work",
        f"dead letters repaired {len(repaired)} of {len(letters)}; with corrected input {len(corrected)}",
        (letters.keys() - repaired) | (letters.keys() ^ evidence.replayed) | (corrected ^ evidence.corrected),
        tested=evidence.replayed and evidence.corrected,
    )


def the_others_wait_for_the_canary(evidence: Evidence) -> Finding:
    """Of many letters one is replayed alone; the provider gets no call of another before that job has completed."""
    calls = [entry for entry in evidence.calls if generation_of(entry.key) > 1]
    canary = min(calls, key=lambda entry: entry.at, default=None)
    first = place_of(canary.key).job_id if canary else ""
    done = [row.at for row in evidence.books.steps if (row.job_id, row.state) == (first, "verified")]
    early = {
        job_id
        for entry in calls
        if (job_id := place_of(entry.key).job_id) != first and done and entry.at < done[0]
    }
    followed = {place_of(entry.key).job_id for entry in calls} - {first}
    return finding(
        "A canary goes before the others",
        f"followed it {len(followed)}, too early {len(early)}",
        early,
        tested=done and followed,
    )


def replays_go_on_where_it_failed(evidence: Evidence) -> Finding:
    """A job that was replayed completes, and calls nothing again that had its effect before."""
    undone = evidence.replayed - evidence.completed
    done_before = {
        place_of(entry.key)
        for entry in evidence.calls
        if entry.effect_id is not None and generation_of(entry.key) == 1
    }
    repeated = {
        place_of(entry.key)
        for entry in evidence.calls
        if generation_of(entry.key) > 1 and place_of(entry.key) in done_before
    }
    return finding(
        "A replay goes on where it failed",
        f"replayed {len(evidence.replayed)}, completed {len(evidence.replayed) - len(undone)}, "
        f"finished stages run again {len(repeated)}",
        undone | repeated,
        tested=bool(evidence.replayed),
    )


def dead_letters_contain_no_secret(evidence: Evidence) -> Finding:
    """The provider's key and its customers' addresses were in every error, and are in no letter and no log."""
    in_letters = [text for text in evidence.books.failure_texts if _contains_secret(text, evidence.secrets)]
    in_logs = [line for line in evidence.logs if _contains_secret(line, evidence.secrets)]
    masked = sum(len(MASK.findall(text)) for text in evidence.books.failure_texts)
    return finding(
        "Dead letters keep secrets",
        f"secrets in dead letters {len(in_letters)}, in log lines {len(in_logs)}; masked {masked:,}",
        ["a dead letter"] * bool(in_letters) + ["a log line"] * bool(in_logs),
        tested=evidence.secrets and masked and evidence.logs,
    )


def _contains_secret(text: str, secrets: Sequence[str]) -> bool:
    return any(secret in text for secret in secrets)


def finished_stages_stay_finished(evidence: Evidence) -> Finding:
    """Once a stage's result is stored, the provider is not called for it any more."""
    stored = {Place(row.job_id, row.name): row.stored_at for row in evidence.books.stages}
    again = {
        place
        for entry in evidence.calls
        if (place := place_of(entry.key)) in stored and entry.at > stored[place]
    }
    return finding(
        "A finished stage stays finished",
        f"stages {len(stored):,}, computed again {len(again)}",
        again,
        tested=stored.keys() >= evidence.expected,
    )


def the_same_key_is_the_same_job(evidence: Evidence) -> Finding:
    """A second submission under the same keys returned the same jobs, and the provider got no call."""
    other = {key for key, job_id in evidence.keys.items() if evidence.again.get(key) != job_id}
    unknown = {key for key, job_id in evidence.keys.items() if evidence.books.keys.get(key) != job_id}
    late = [entry for entry in evidence.calls if evidence.again and entry.number > evidence.calls_before]
    run = {str(entry.key) for entry in late}
    return finding(
        "The same key is the same job",
        f"submitted again {len(evidence.again):,}, run again {len({key.split(':')[0] for key in run})}",
        other | unknown | run,
        tested=bool(evidence.again),
    )


def attempts_stay_within_budget(evidence: Evidence) -> Finding:
    """No stage had more attempts than allowed: by the provider's count, and by the database's."""
    tried = Counter(str(entry.key) for entry in evidence.calls)
    over: set[object] = {key for key, count in tried.items() if count > evidence.budget}
    over |= {row.id for row in evidence.books.jobs if row.attempt > evidence.budget}
    over |= {Place(row.job_id, row.name) for row in evidence.books.stages if row.attempt > evidence.budget}
    most = max(tried.values(), default=0)
    return finding(
        f"A stage has at most {evidence.budget} attempts",
        f"above budget {len(over)}; the most was {most}",
        over,
        tested=most > 1,
    )


def waits_that_were_asked_for_are_kept(evidence: Evidence) -> Finding:
    """After a 429 with `Retry-After` the provider gets no call of that job before the time is over."""
    retries = sum(row.kind == "retry" for row in evidence.books.events)
    calls: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in sorted(evidence.calls, key=lambda entry: entry.at):
        calls[place_of(entry.key).job_id].append(entry)
    asked, early = 0, set[str]()
    for job_id, received in calls.items():
        for entry, following in zip(received, [*received[1:], None], strict=True):
            if entry.status == 429:
                asked += 1
                if following is not None and following.at - entry.at < evidence.retry_after:
                    early.add(job_id)
    seconds = f"{evidence.retry_after.total_seconds():g} s"
    return finding(
        "Retry-After is honoured",
        f"retries {retries}; asked to wait {seconds} {asked} times, too early {len(early)}",
        early,
        tested=asked,
    )


def held_jobs_spend_no_attempt(evidence: Evidence) -> Finding:
    """Once its breaker is open, a failing provider gets only trial calls, and those cost no attempt.

    By the database, a stage took one attempt more than its job had retries; and there were as many retries as
    calls that failed when it opened. Half a cooldown later no call is in flight any more, and no trial has begun yet.
    """
    failed = [entry.at for entry in _calls_of_outage(evidence) if entry.status == 503]
    opened = _instants(evidence, "opened")
    before = [
        at for at in failed if evidence.outage and opened and at < opened[0] + evidence.outage.cooldown / 2
    ]
    retries = Counter(row.job_id for row in evidence.books.events if row.kind == "retry")
    spent = {row.job_id: row.attempt for row in evidence.books.stages}
    calling = evidence.outage.calling if evidence.outage else frozenset()
    wrong = {job_id for job_id in calling if spent.get(job_id) != 1 + retries[job_id]}
    while_open = sum(retries[job_id] for job_id in calling) - len(before)
    return finding(
        "Held jobs spend no attempt",
        f"calls {len(before)}, failed trials {len(failed) - len(before)}; attempts spent while open {while_open}",
        wrong | ({"attempts spent while open"} if while_open else set()),
        tested=len(failed) > len(before) > 0,
    )


def other_work_goes_on(evidence: Evidence) -> Finding:
    """Jobs that do not call the failing provider complete while it is down, although they were submitted later."""
    outage, opened = evidence.outage, _instants(evidence, "opened")
    done = {
        row.job_id
        for row in evidence.books.stages
        if outage and opened and opened[0] <= row.stored_at < outage.healed_at
    }
    beside = outage.beside if outage else frozenset()
    return finding(
        "Other work goes on meanwhile",
        f"jobs beside {len(beside)}, done while it was down {len(beside & done)}",
        beside - done,
        tested=beside,
    )


def the_backlog_goes_out_in_a_ramp(evidence: Evidence) -> Finding:
    """When the provider is back it gets 3 jobs, then 6, then 12, and its breaker stays closed."""
    closed = _instants(evidence, "closed")
    later = [entry.at - closed[0] for entry in _calls_of_outage(evidence) if closed and entry.at >= closed[0]]
    steps = Counter(since // RAMP_EVERY for since in later)
    called, over = 0, set[str]()
    for number in range(max(steps, default=-1) + 1):
        called += steps[number]
        if called > RAMP_FIRST * (2 ** (number + 1) - 1):
            over.add(f"{called} calls within {(number + 1) * RAMP_EVERY.seconds} s")
    again = {"opened again" for at in _instants(evidence, "opened") if closed and at > closed[0]}
    per_step = ", ".join(str(steps[number]) for number in range(max(steps, default=-1) + 1))
    return finding(
        "The backlog goes out in a ramp",
        f"calls in each {RAMP_EVERY.seconds} s {per_step}; opened again {len(again)}",
        over | again,
        tested=len(later) > RAMP_FIRST,
    )


def _calls_of_outage(evidence: Evidence) -> list[Entry]:
    calling = evidence.outage.calling if evidence.outage else frozenset()
    return [entry for entry in evidence.calls if place_of(entry.key).job_id in calling]


def _instants(evidence: Evidence, kind: str) -> list[datetime]:
    """Return the times of events of the provider that was broken."""
    name = evidence.outage.provider if evidence.outage else None
    return [row.at for row in evidence.books.provider_events if (row.name, row.kind) == (name, kind)]
