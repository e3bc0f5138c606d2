"""For each guarantee about jobs, stages, idempotency and deadlines a bug under which the tests of that guarantee fail."""

from __future__ import annotations

BROKEN_BY = {
    "JOB-1": "answer-before-commit",
    "JOB-2": "claim-without-priority",
    "JOB-3": "claim-in-two-steps",
    "JOB-4": "reclaim-early",
    "JOB-5": "no-extension",
    "JOB-6": "drop-the-fence",
    "JOB-7": "shutdown-spends-the-attempt",
    "JOB-8": "worker-ignores-hints",
    "JOB-9": "claim-scans-the-table",
    "JOB-10": "suspects-in-company",
    "JOB-11": "requeue-without-event",
    "JOB-12": "retry-anything",
    "STG-1": "stages-not-read",
    "STG-2": "next-stage-pays",
    "STG-3": "failed-stage-not-recorded",
    "IDM-1": "key-of-everybody",
    "IDM-2": "key-forgotten-at-the-end",
    "IDM-3": "equal-version-runs-again",
    "IDM-4": "key-known-at-the-end",
    "SLA-1": "retry-moves-the-deadline",
    "SLA-2": "deadline-for-running-jobs-only",
    "SLA-3": "late-result-applied",
    "SLA-4": "accepted-twice",
}
