"""What is given out of the limits of a key: a row of its own, which is written with the provider's or not at all."""

import asyncio
import json
import time
from datetime import timedelta

from holdfast.core.providers.limits import LimitRequest, Limits, Rate
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.providers.provider_state import ProviderState
from holdfast.engine.providers.shared_state import HistoryEntry, swap
from holdfast.ports import Store
from holdfast.ports.providers import KeyWrite
from tests.contract.conftest import Database, DatabaseClock

EXPIRES = timedelta(minutes=1).total_seconds()
CUSTOMERS = ProviderSpec("llm", key_limits=Limits(concurrency=2, rate=Rate.of("1/min")))


class NoRandom:
    """The writer that lost tries again at once."""

    def random(self) -> float:
        return 0.0


async def written(store: Store, *keys: KeyWrite, version: int = 0, state: str | None = None) -> bool:
    return await store.providers.swap("llm", version, state, keys=keys)


async def states(store: Store, *keys: str) -> dict[str, str]:
    return {key: row.state for key, row in (await store.providers.read_keys("llm", keys)).items()}


async def a_key(store: Store, key: str, state: str = "[]") -> KeyWrite:
    """Give the write that would replace what is stored of a key now."""
    now, _ = await store.providers.read([])
    found = (await store.providers.read_keys("llm", [key])).get(key)
    return KeyWrite(key, 0 if found is None else found.version, state, now + EXPIRES)


async def test_keys_are_stored_and_replaced_by_who_knows_their_versions(store: Store) -> None:
    assert await written(store, await a_key(store, "ann", "1"), await a_key(store, "", "2"))
    assert await states(store, "ann", "", "bob") == {"ann": "1", "": "2"}

    assert await written(store, await a_key(store, "ann", "3"), await a_key(store, "bob", "4"))

    assert await states(store, "ann", "", "bob") == {"ann": "3", "": "2", "bob": "4"}
    assert await store.providers.names() == []


async def test_all_of_it_is_written_or_nothing(store: Store) -> None:
    old = await a_key(store, "ann", "1")
    assert await written(store, old, version=0, state="first")

    late = await a_key(store, "ann", "late")
    assert not await written(store, old, await a_key(store, "bob", "2"))
    assert not await written(store, late, await a_key(store, "bob", "2"), version=7, state="late")
    assert not await written(store, late._replace(version=late.version + 1), version=1, state="late")

    assert await states(store, "ann", "bob") == {"ann": "1"}
    _, rows = await store.providers.read(["llm"])
    assert rows["llm"] == (1, "first")


async def test_keys_that_have_expired_are_deleted_a_batch_at_a_time_and_never_mistaken_for_their_successors(
    store: Store, clock: DatabaseClock
) -> None:
    await written(store, *[await a_key(store, name) for name in "abc"])
    stale = await a_key(store, "a", "stale")
    await clock.advance(timedelta(minutes=2))
    await written(store, await a_key(store, "c", "again"))

    assert [await store.providers.delete_expired_keys(limit=1) for _ in range(3)] == [1, 1, 0]
    await written(store, await a_key(store, "a", "new"))

    assert not await written(store, stale)
    assert await states(store, "a", "b", "c") == {"a": "new", "c": "again"}


async def test_many_who_want_the_same_keys_in_another_order_come_through(
    store: Store, database: Database
) -> None:
    others = [database.new_store() for _ in range(3)]
    for other in others:
        await other.open()

    async def count(through: Store, keys: str) -> None:
        done = 0
        while done < 10:
            writes = []
            for key in keys:
                found = (await through.providers.read_keys("llm", [key])).get(key)
                number = 0 if found is None else int(found.state)
                writes.append(
                    KeyWrite(key, 0 if found is None else found.version, str(number + 1), time.time() + 600)
                )
            done += await through.providers.swap("llm", 0, None, keys=writes)

    async with asyncio.timeout(60):
        await asyncio.gather(
            *(count(other, keys) for other, keys in zip(others, ("abc", "cab", "bca"), strict=True))
        )

    assert await states(store, "a", "b", "c") == dict.fromkeys("abc", "30")
    for other in others:
        await other.close()


async def test_a_limit_of_a_key_is_kept_by_workers_that_read_and_write_that_key_alone(store: Store) -> None:
    async def grants(worker: str, key: str) -> int:
        def step(state: ProviderState, now: float) -> tuple[ProviderState, int, list[HistoryEntry]]:
            assert set(state.keys) <= {key}
            state, given = state.grant(CUSTOMERS, worker, LimitRequest({}, {key: 5}), now)
            return state, len(given), []

        return (await swap(store, "llm", step, random=NoRandom(), keys=lambda _: [key])).answer

    assert [await grants(worker, key) for key in ("ann", "bob") for worker in "xy"] == [1, 0, 1, 0]
    assert await store.providers.names() == []


async def test_an_exchange_beside_a_hundred_thousand_keys_moves_its_own_key_and_nothing_else(
    store: Store,
) -> None:
    now, _ = await store.providers.read([])
    quota = json.dumps([now, now, {"worker": [1, 1, now + 10]}])
    for start in range(0, 100_000, 10_000):
        numbers = range(start, start + 10_000)
        assert await written(store, *[KeyWrite(f"{number}", 0, quota, now + 600) for number in numbers])

    def step(state: ProviderState, now: float) -> tuple[ProviderState, int, list[HistoryEntry]]:
        assert state == ProviderState()
        after, grants = state.grant(CUSTOMERS, "worker", LimitRequest({}, {"ann": 1}), now)
        return after, len(grants), []

    done = await swap(store, "llm", step, random=NoRandom(), keys=lambda _: ["ann"])

    assert (done.answer, set(done.read.state.keys)) == (1, {"ann"})
    assert await store.providers.names() == [], "nothing of it stands in the provider's row"
    assert set(await states(store, "ann", "7", "absent")) == {"ann", "7"}
