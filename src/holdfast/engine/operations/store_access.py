"""How a service for operators reaches its store, from async code and from code without an event loop."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from holdfast.engine.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")


class RunSync(Protocol):
    """Calls a function with the object whose store belongs to another event loop, and waits for the result."""

    def __call__(self, method: str, call: Callable[[Any], Coroutine[Any, Any, T]], /) -> T: ...


class StoreAccess(NamedTuple):
    """What opens the store of a service before it is used, and runs a method for code without an event loop."""

    open: Callable[[], Awaitable[None]]
    open_for_change: Callable[[], Awaitable[None]]
    """Opens the store, except inside a job that is being parked: nothing that such a job does may take effect."""
    run_sync: RunSync


class _HasRunSync(Protocol):
    def _run_sync(self, method: str, call: Callable[[Any], Coroutine[Any, Any, T]], /) -> T: ...


S = TypeVar("S", bound=_HasRunSync)


def in_sync(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """Return the twin of an async method for code without an event loop: it blocks until the result is there."""
    name = method.__name__

    @wraps(method)
    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run_sync(name, lambda its: method(its, *args, **kwargs))

    twin.__name__ += "_sync"
    twin.__qualname__ += "_sync"
    twin.__doc__ = f"Do what `{name}` does, for code without an event loop: block until it is done."
    return twin


class OperatorService:
    """The base of the services for operators: each method opens the store first, unless it is open."""

    def __init__(self, runtime: Runtime, access: StoreAccess) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._access = access

    def _run_sync(self, method: str, call: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
        return self._access.run_sync(method, call)
