"""A store that follows Django's database when its address changes."""

from collections.abc import Callable
from typing import Any

from holdfast.ports import Store


class FollowingStore:
    """A `Store` on the database whose address *url* returns, evaluated for each call.

    Modules with jobs are imported before a test runner replaces the real database by its test database, and
    parallel test processes replace that by a copy. With the first address, tests would write to the real database.
    """

    def __init__(self, url: Callable[[], str], store_at: Callable[[str], Store]) -> None:
        self._url = url
        self._store_at = store_at
        self._stores: dict[str, Store] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current(), name)

    async def open(self) -> None:
        """Connect to the current database, and disconnect from earlier ones."""
        current = self._current()
        for store in list(self._stores.values()):
            if store is not current:
                await store.close()
        await current.open()

    async def close(self) -> None:
        """Disconnect from all databases."""
        for store in list(self._stores.values()):
            await store.close()

    def _current(self) -> Store:
        url = self._url()
        if url not in self._stores:
            # If several threads get here at once, all use the store of the first.
            self._stores.setdefault(url, self._store_at(url))
        return self._stores[url]
