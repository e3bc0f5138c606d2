"""What arq reads from a class of settings: the attributes of that very class, inherited ones not included."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from holdfast.app import Holdfast
from holdfast.core.errors import ConfigError, HoldfastError

Hook = Callable[[dict[Any, Any]], Awaitable[Any]]
"""What arq calls at the start and the end of a worker, with its context."""


class WorkerPart(Protocol):
    """What Holdfast runs inside an arq worker, from the worker's start to its end."""

    async def start(self, ctx: dict[Any, Any]) -> None:
        """Connect, and be ready. Raises `HoldfastError`."""
        ...

    async def stop(self) -> None:
        """End what runs; the resources of the application are still there."""
        ...

    async def close(self) -> None:
        """Disconnect, after the hooks of the application."""
        ...


def hold_of(settings: type) -> Holdfast:
    """Return the `hold` of a class of settings. Raises `ConfigError`."""
    hold = getattr(settings, "hold", None)
    if not isinstance(hold, Holdfast):
        raise ConfigError(f"{settings.__name__} needs the Holdfast of the application: hold = hold")
    return hold


def refuse_own(settings: type, reasons: Mapping[str, str]) -> None:
    """Raise `ConfigError` if a class sets what Holdfast sets; *reasons* say why, by the name of the attribute."""
    for name, reason in reasons.items():
        if name in vars(settings):
            raise ConfigError(f"{settings.__name__}.{name} is set by Holdfast, because {reason}; remove it")


def fill(settings: type, fixed: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Set the attributes that arq reads; *defaults* only where the class has none of its own."""
    for name, value in fixed.items():
        setattr(settings, name, value)
    for name, value in defaults.items():
        if name not in vars(settings):
            setattr(settings, name, value)


def hooks(part: WorkerPart, settings: type) -> dict[str, Hook]:
    """Return the hooks that start and stop *part* around those that the class of settings has."""
    own_start, own_stop = vars(settings).get("on_startup"), vars(settings).get("on_shutdown")

    async def start(ctx: dict[Any, Any]) -> None:
        try:
            await part.start(ctx)
        except HoldfastError as error:
            raise SystemExit(f"holdfast: {error}") from None  # one line, where arq would print its stack
        if own_start is not None:
            await own_start(ctx)

    async def stop(ctx: dict[Any, Any]) -> None:
        try:
            await part.stop()
            if own_stop is not None:
                await own_stop(ctx)
        finally:
            await part.close()

    return {"on_startup": start, "on_shutdown": stop}
