"""Stages: plain functions that, inside a job, run once and keep their result."""

import asyncio
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from holdfast.aio.coroutines import mark_async
from holdfast.core.errors import PayloadInvalid
from holdfast.core.names import LONGEST_NAME, is_name
from holdfast.engine.execution.context import CURRENT
from holdfast.engine.registry import StageSpec

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast.engine.execution.job_context import JobContext

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class StageFunction(Generic[P, R]):
    """A stage. Outside a job it is the function it was made from, and just runs."""

    def __init__(self, spec: StageSpec, *, key: str | None = None) -> None:
        self.spec = spec
        self._key = key
        update_wrapper(self, spec.function)
        if spec.is_async:
            mark_async(self)

    def options(self, *, key: str) -> "StageFunction[P, R]":
        """Identify this call by *key* instead of by its order: for stages that run concurrently."""
        if not key or not is_name(key) or key.startswith("#"):
            raise PayloadInvalid(
                f"a stage's key must be printable text of 1 to {LONGEST_NAME} characters and not begin with '#', "
                "which counts the calls without a key"
            )
        return StageFunction(self.spec, key=key)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        job = CURRENT.get()
        if job is None:
            return cast("R", self.spec.function(*args, **kwargs))
        if self.spec.is_async:
            if _running_loop() is not job.loop:
                raise TypeError(
                    f"stage {self.spec.name!r} is async and its job is a plain function; "
                    f"call it as `{self.spec.name}.on_loop(...)`, or make the job async"
                )
            return cast("R", job.run_stage(self.spec, self._key, args, kwargs))
        return cast("R", self._from_thread(job, args, kwargs))

    def in_thread(self, *args: P.args, **kwargs: P.kwargs) -> "Coroutine[Any, Any, R]":
        """Run a stage that is a plain function from an async job, in a thread."""
        if self.spec.is_async:
            raise TypeError(
                f"stage {self.spec.name!r} is async and needs no thread; call it as `await {self.spec.name}(...)`"
            )
        job = CURRENT.get()
        if job is None:
            return cast("Coroutine[Any, Any, R]", asyncio.to_thread(self.spec.function, *args, **kwargs))
        return job.run_stage(self.spec, self._key, args, kwargs)

    def on_loop(self: "StageFunction[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a stage that is async from a plain job, on the worker's loop, and wait for it."""
        if not self.spec.is_async:
            raise TypeError(
                f"stage {self.spec.name!r} is a plain function and needs no loop; call it as `{self.spec.name}(...)`"
            )
        if _running_loop() is not None:
            raise TypeError(
                f"stage {self.spec.name!r} is async, and so is its caller; call it as `await {self.spec.name}(...)`"
            )
        job = CURRENT.get()
        if job is None:
            return cast("T", asyncio.run(self.spec.function(*args, **kwargs)))
        return cast("T", self._from_thread(job, args, kwargs))

    def _from_thread(self, job: "JobContext", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _running_loop() is job.loop:
            raise TypeError(
                f"stage {self.spec.name!r} is a plain function and its job is async; "
                f"call it as `await {self.spec.name}.in_thread(...)`"
            )
        future = asyncio.run_coroutine_threadsafe(job.run_stage(self.spec, self._key, args, kwargs), job.loop)
        return future.result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
