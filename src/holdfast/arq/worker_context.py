"""The context of the arq worker in this process: what its hooks have put there, and its connection to Redis."""

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdfast.app import current

if TYPE_CHECKING:
    from holdfast.app import Holdfast

_CONTEXTS: "WeakKeyDictionary[Holdfast, dict[Any, Any]]" = WeakKeyDictionary()


def set_worker_context(hold: "Holdfast", ctx: dict[Any, Any]) -> None:
    """Remember the context of the worker that runs the jobs of *hold*; what is added to it later is seen, too."""
    _CONTEXTS[hold] = ctx


def context_of_attempt(hold: "Holdfast") -> dict[Any, Any]:
    """Return what an arq function gets as its first argument: the worker's context, with the job's id and its attempt."""
    here = current()
    return {**_CONTEXTS.get(hold, {}), "job_id": here.job_id, "job_try": here.attempt}
