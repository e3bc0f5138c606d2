"""What a process can run: the jobs and stages that were declared in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast.core.backoff import RetryPolicy
from holdfast.core.errors import ConfigError
from holdfast.engine.shapes import Shape


@dataclass(frozen=True, slots=True)
class StageSpec:
    """A stage as declared."""

    name: str
    function: Callable[..., Any]
    shape: Shape
    policy: RetryPolicy
    is_async: bool
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as declared."""

    name: str
    function: Callable[..., Any]
    shape: Shape
    policy: RetryPolicy
    queue: str
    priority: int
    is_async: bool
    timeout: timedelta | None = None
    _budgets: set[int] = field(default_factory=set)

    def saw_stage(self, stage: StageSpec) -> None:
        """Remember that the job runs this stage."""
        self._budgets.add(stage.policy.attempts)

    @property
    def crash_budget(self) -> int:
        """How many claims in a row may end in a lost worker.

        A crash leaves no note of the stage it happened in, so the largest budget of the job and
        its stages stands; a stage that is reached checks its own.
        """
        return max(self.policy.attempts, *self._budgets, 1)


class Registry:
    """Jobs by name."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobSpec] = {}

    def add(self, spec: JobSpec) -> None:
        """Declare a job. A name means one thing in a process."""
        if spec.name in self._jobs:
            raise ConfigError(f"a job named {spec.name!r} is declared twice; give one of them another name")
        if not -32_768 <= spec.priority <= 32_767:
            raise ConfigError(f"priority of job {spec.name!r} must be between -32768 and 32767")
        self._jobs[spec.name] = spec

    def get(self, name: str) -> JobSpec | None:
        """Find a job, or `None`: another version of the code may know it."""
        return self._jobs.get(name)

    def __iter__(self) -> Iterator[JobSpec]:
        return iter(self._jobs.values())
