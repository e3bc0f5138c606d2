"""Lending a `Holdfast`: while a test has it, the user's own object passes its work on to a twin.

The twin has the same jobs, stages, settings and rules, and other parts. The object itself is not
changed, so there is nothing to put right afterwards.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from holdfast.core.errors import ConfigError
from holdfast.core.jobs import Submission
from holdfast.engine.parts import Parts
from holdfast.face import Holdfast, JobHandle

PASSED_ON = (
    "open",
    "close",
    "apply_schema",
    "worker",
    "wait",
    "read",
    "find",
    "events",
    "cancel",
    "retry",
    "_submit",
    "_new_id",
)
"""Everything that touches a store, a worker or an id. What declares jobs or only reads a value stays."""

_lending = threading.Lock()


class Twin(Holdfast):
    """A `Holdfast` with everything of *original* but its parts: it is not made anew from the environment."""

    def __init__(self, original: Holdfast, parts: Parts) -> None:
        own = {name: value for name, value in vars(original).items() if name not in PASSED_ON}
        vars(self).update(own)
        self._use(parts)

    async def _submit(
        self, name: str, batch: Sequence[Submission], within: Any = None
    ) -> list[JobHandle[Any]]:
        """Store calls at once: a transaction of another database cannot be joined."""
        return await super()._submit(name, batch)


@contextmanager
def lent(hold: Holdfast, twin_here: Callable[[], Twin]) -> Iterator[None]:
    """Let *hold* pass its work on to the twin that *twin_here* gives, as long as the block lasts."""
    with _lending:
        if "_submit" in vars(hold):
            raise ConfigError(
                "this Holdfast is in a simulation or in inline() already; one test at a time can have it"
            )
        for name in PASSED_ON:
            vars(hold)[name] = _passed_on(name, twin_here)
    try:
        yield
    finally:
        for name in PASSED_ON:
            del vars(hold)[name]


def _passed_on(name: str, twin_here: Callable[[], Twin]) -> Callable[..., Any]:
    @wraps(getattr(Holdfast, name))
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(twin_here(), name)(*args, **kwargs)

    return call
