"""Jobs whose runs fail or lose their workers repeatedly: when one is given up, and what runs beside it.

A lost worker leaves no record of which of its jobs crashed it. Each of them is suspected from then on. Suspected jobs
run beside other jobs, and fewer at a time the more workers they have lost: many, then few, then one. A run whose loss
would be the last has no other suspected job beside it.
"""

from dataclasses import replace

from holdfast.core.failures.failure import Failure
from holdfast.core.failures.message import LINE_LIMIT
from holdfast.core.jobs.job import Claim

LOSSES_PER_ATTEMPT = 2
"""Workers that a job may lose in a row for each of its attempts, if its runs store stages in between.

A stage that ends gives the next one its own attempts, but the job stays suspected.
"""

FAILED_RUNS_PER_ATTEMPT = 100
"""Runs of a job that may fail or lose their worker, for each of its attempts; a job may set another limit."""


def lost_too_often(claim: Claim, budget: int) -> bool:
    """Whether a job has lost as many workers as its *budget* of attempts allows: it is not run again.

    An attempt that was given back after a loss was begun nevertheless: a job with one attempt is not begun twice.
    """
    if not claim.suspected:
        return False
    if budget == 1 and claim.excused:
        return True
    return claim.attempt > budget or claim.losses >= LOSSES_PER_ATTEMPT * budget


def quarantine_limit(claim: Claim, budget: int, slots: int) -> int:
    """Return how many suspected jobs, itself included, may run beside this one in a worker with *slots* slots."""
    last = claim.attempt >= budget or claim.losses + 1 >= LOSSES_PER_ATTEMPT * budget
    return 1 if last else max(1, slots >> 2 * max(claim.losses, 1))


def out_of_runs(last: Failure, limit: int) -> Failure:
    """Return the failure of a job that has failed or lost its worker in *limit* runs, of which *last* was one.

    >>> from holdfast.core.failures.failure import worker_lost
    >>> out_of_runs(worker_lost(), 300).message.partition(";")[0]
    '300 runs of the job failed or lost their worker, the most that max_failed_runs allows'
    """
    advice = (
        f"{limit} runs of the job failed or lost their worker, the most that max_failed_runs allows; "
        "a key= of a stage has to be the same in each run; replay the job once its cause is removed"
    )
    return replace(last, message=f"{advice}; the last: {last.message}"[:LINE_LIMIT])
