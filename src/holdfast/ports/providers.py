"""The stored state of providers, which all workers share.

A provider's state is one row with a version. A change names the version that was read, and is retried
if another version is stored by then: no lock is held between reading and writing, so a worker that
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
    """The new state of one key of a provider, written if *version* is still the stored one; 0: none is stored."""

    key: str
    version: int
    state: str
    expires: float
    """The store's time in seconds after which the row has no effect."""


class ProviderEvent(NamedTuple):
    """An event in the history of a provider: a transition, or an operator's override."""

    name: str
    at: datetime
    kind: str
    meta: Mapping[str, Any]


class ProviderStore(Protocol):
    """The operations of a store on providers, and on the jobs that are held for one."""

    async def read(self, names: Sequence[str]) -> tuple[float, dict[str, ProviderRow]]:
        """Read the states of these providers, and the store's time in seconds; one without a state is left out."""
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
        """Replace the state if *version* is still the one that is stored, and store *events* with it; return false otherwise.

        With *keys*, all of it is written or nothing: each of their versions has to match as well. Without a *state*
        only they are written.
        """
        ...

    async def read_keys(self, name: str, keys: Sequence[str]) -> dict[str, ProviderRow]:
        """Read the states of these keys of a provider; one without a state is left out."""
        ...

    async def delete_expired_keys(self, *, limit: int) -> int:
        """Delete up to *limit* keys that have expired, of all providers; return how many."""
        ...

    async def names(self) -> list[str]:
        """Return the names of the providers that have a stored state."""
        ...

    async def events(self, name: str, *, limit: int) -> list[ProviderEvent]:
        """Read the history of a provider, the newest event first."""
        ...

    async def holders(self) -> list[Holder]:
        """Return all holders of jobs. The cost grows with their number, and not with that of the jobs."""
        ...

    async def count_held(self) -> dict[Holder, int]:
        """Count held jobs by holder. The cost grows with the number of held jobs."""
        ...

    async def release(self, holder: Holder, *, limit: int) -> int:
        """Make up to *limit* jobs ready that are held by *holder*, the longest held first; return how many."""
        ...
