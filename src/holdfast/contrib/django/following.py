"""A store that is where Django's database is."""

from collections.abc import Callable
from typing import Any

from holdfast.ports import Store


class FollowingStore:
    """A `Store` on the database whose address *url* gives, asked anew for each call.

    Modules with jobs are imported before a test runner puts its test database in the place of the real
    one, and a process of parallel tests puts a copy in the place of that. Whoever kept the first address
    would let tests write into the real database.
    """

    def __init__(self, url: Callable[[], str], store_at: Callable[[str], Store]) -> None:
        self._url = url
        self._store_at = store_at
        self._stores: dict[str, Store] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here(), name)

    async def open(self) -> None:
        """Connect to where the database is now, and leave where it was before."""
        here = self._here()
        for store in list(self._stores.values()):
            if store is not here:
                await store.close()
        await here.open()

    async def close(self) -> None:
        """Disconnect, wherever a connection is."""
        for store in list(self._stores.values()):
            await store.close()

    def _here(self) -> Store:
        url = self._url()
        if url not in self._stores:
            # Of threads that come here together, the first decides: what one has opened is what all use.
            self._stores.setdefault(url, self._store_at(url))
        return self._stores[url]
