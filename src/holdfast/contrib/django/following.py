"""A store on the current database of Django, which test runners replace."""

from collections.abc import Callable
from typing import Any

from holdfast.ports import Store


class FollowingStore:
    """A `Store` on the database whose address *url* returns; it is called for each operation.

    Modules with jobs are imported before a test runner replaces the real database by its test database, and a process of
    parallel tests replaces that by a copy. With the first address, tests would write into the real database.
    """

    def __init__(self, url: Callable[[], str], store_at: Callable[[str], Store]) -> None:
        self._url = url
        self._store_at = store_at
        self._stores: dict[str, Store] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here(), name)

    async def open(self) -> None:
        """Connect to the current database, and disconnect from an earlier one."""
        here = self._here()
        for store in list(self._stores.values()):
            if store is not here:
                await store.close()
        await here.open()

    async def close(self) -> None:
        """Disconnect from all databases."""
        for store in list(self._stores.values()):
            await store.close()

    def _here(self) -> Store:
        url = self._url()
        if url not in self._stores:
            # Concurrent threads get the store of the first one.
            self._stores.setdefault(url, self._store_at(url))
        return self._stores[url]
