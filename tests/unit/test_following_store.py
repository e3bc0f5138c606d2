"""The store of a `DjangoHoldfast` goes where Django's database goes."""

from typing import Any

import pytest

from holdfast.contrib.django.following_store import FollowingStore


class StoreAt:
    """As much of a store as knows where it is, and who is connected."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connected = False

    async def open(self) -> None:
        self.connected = True

    async def close(self) -> None:
        self.connected = False


class Django:
    """Has one database at a time, and remembers the stores that were made for any."""

    def __init__(self) -> None:
        self.url = "sqlite:///real.db"
        self.made: list[StoreAt] = []
        self.store = FollowingStore(lambda: self.url, self._store_at)

    def _store_at(self, url: str) -> Any:
        self.made.append(StoreAt(url))
        return self.made[-1]

    @property
    def connected(self) -> list[str]:
        return [store.url for store in self.made if store.connected]


@pytest.fixture
def django() -> Django:
    return Django()


def test_the_database_is_not_asked_for_before_it_is_needed(django: Django) -> None:
    assert django.made == []

    django.url = "sqlite:///test.db"

    assert django.store.url == "sqlite:///test.db"


async def test_a_store_that_is_opened_again_leaves_where_the_database_was(django: Django) -> None:
    await django.store.open()
    django.url = "sqlite:///test.db"

    await django.store.open()

    assert django.connected == ["sqlite:///test.db"]


async def test_a_database_that_comes_back_finds_the_store_it_had(django: Django) -> None:
    await django.store.open()
    django.url = "sqlite:///test.db"
    await django.store.open()
    django.url = "sqlite:///real.db"

    await django.store.open()

    assert django.connected == ["sqlite:///real.db"]
    assert len(django.made) == 2


async def test_closing_disconnects_also_where_the_database_was(django: Django) -> None:
    await django.store.open()
    django.url = "sqlite:///test.db"

    await django.store.close()

    assert django.connected == []
