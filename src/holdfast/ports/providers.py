"""What is shared about providers, kept beside the jobs.

A provider's state is one row with a version. A change names the version that was read, and is tried again
if that is no longer the one that is there: no lock is held between reading and writing, so a worker that
stops in between blocks no other.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from holdfast.core.providers.holder import Holder


class ProviderRow(NamedTuple):
    """The state of a provider as stored; version 0: nothing is stored yet."""

    version: int
    state: str


class KeyWrite(NamedTuple):
    """What is to be stored of one key of a provider, if *version* is still the one that is there; 0: none is."""

    key: str
    version: int
    state: str
    expires: float
    """The store's time in seconds after which the row means nothing any more."""


class ProviderEvent(NamedTuple):
    """Something that happened to a provider: a transition, or an operator's override."""

    name: str
    at: datetime
    kind: str
    meta: Mapping[str, Any]


class ProviderStore(Protocol):
    """The part of a store that is about providers, and about the jobs that are held for one."""

    async def read(self, names: Sequence[str]) -> tuple[float, dict[str, ProviderRow]]:
        """Read what is stored of these, and the store's time in seconds; what is not there is left out."""
        ...

    async def swap(
        self,
        name: str,
        version: int,
        state: str | None,
        events: Sequence[tuple[str, str]] = (),
        *,
        keys: Sequence[KeyWrite] = (),
    ) -> bool:
        """Replace the state if *version* is still the one that is stored, and note *events* with it; else false.

        With *keys*, all of it is written or nothing: each of their versions has to match as well. Without a *state*
        only they are written.
        """
        ...

    async def read_keys(self, name: str, keys: Sequence[str]) -> dict[str, ProviderRow]:
        """Read what is stored of these keys of a provider; what is not there is left out."""
        ...

    async def delete_expired_keys(self, *, limit: int) -> int:
        """Delete up to *limit* keys that have expired, of all providers; count them."""
        ...

    async def names(self) -> list[str]:
        """Name everything of which a state is stored."""
        ...

    async def events(self, name: str, *, limit: int) -> list[ProviderEvent]:
        """Read what happened to a provider, the newest first."""
        ...

    async def holders(self) -> list[Holder]:
        """Return what holds jobs. The cost grows with their number, and not with that of the jobs."""
        ...

    async def count_held(self) -> dict[Holder, int]:
        """Count the jobs that are held, by what holds them. The cost grows with those that are held."""
        ...

    async def release(self, holder: Holder, *, limit: int) -> int:
        """Make up to *limit* jobs ready that are held by *holder*, the longest held first; count them."""
        ...
