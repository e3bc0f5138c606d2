"""What all attempts of a worker share."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.jobs.job import Claim
from holdfast.core.strict_json import fingerprint
from holdfast.engine.execution.attempt_failures import FailureTexts
from holdfast.engine.providers.admission import Admission
from holdfast.engine.store_retry import StoreRetry
from holdfast.engine.worker.settler import Settler
from holdfast.engine.worker.unrunnable import Unrunnable
from holdfast.ports import Executor, Logger, Random, Store, Tracer


@dataclass(frozen=True, slots=True)
class AttemptRuntime:
    """The dependencies that all attempts of a worker share."""

    settler: Settler
    unrunnable: Unrunnable
    failures: FailureTexts
    random: Random
    executor: Executor
    logger: Logger
    store: Store
    store_retry: StoreRetry
    loop: asyncio.AbstractEventLoop
    closing: Callable[[], bool]
    admission: Admission | None = None
    tracer: Tracer | None = None
    fingerprint: Callable[[str], str] = fingerprint
    code_version: str = ""
    allowed: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """Filters the fields that a job notes: those that its dead letter may show."""
    at_deadline: Callable[[], None] | None = None
    """Called when the deadline of a job has passed, by this process's clock, if the job is to be stopped then.

    Without it, the attempt stops itself.
    """
    bind_job: Callable[[Claim], None] | None = None
    """Binds the job to the log context of its function."""
