"""What is shared about a provider: one row, replaced by a writer that has read its present version."""

import asyncio
import json
from datetime import timedelta
from typing import Any

from holdfast import Status
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.transitions import Finish, StageWrite
from holdfast.ports import Store
from holdfast.ports.providers import ProviderRow
from holdfast.ports.store import Settled
from holdfast.types import EventKind
from tests.builders import a_failure, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import a_claim

NAMES = ["llm", "speech", "gateway"]


async def row(store: Store, name: str = "llm") -> ProviderRow | None:
    _, rows = await store.providers.read([name])
    return rows.get(name)


async def test_of_a_provider_that_was_never_written_there_is_nothing(store: Store) -> None:
    _, rows = await store.providers.read(NAMES)

    assert rows == {}
    assert await store.providers.names() == []
    assert await store.providers.events("llm", limit=10) == []


async def test_the_time_is_the_stores_own(store: Store, clock: DatabaseClock) -> None:
    before = await clock.now()
    now, _ = await store.providers.read([])
    await clock.advance(timedelta(days=30))
    later, _ = await store.providers.read(NAMES)

    assert 0 <= now - before.timestamp() < 60
    assert 0 <= later - now - timedelta(days=30).total_seconds() < 60


async def test_a_state_is_stored_and_replaced_by_who_knows_its_version(store: Store) -> None:
    assert await store.providers.swap("llm", 0, '{"first":1}')
    assert await row(store) == ProviderRow(1, '{"first":1}')

    assert await store.providers.swap("llm", 1, '{"second":2}')

    assert await row(store) == ProviderRow(2, '{"second":2}')


async def test_who_has_read_another_version_changes_nothing(store: Store) -> None:
    await store.providers.swap("llm", 0, "1")
    await store.providers.swap("llm", 1, "2")

    answers = [
        await store.providers.swap("llm", version, "late", [("opened", "{}")]) for version in (0, 1, 3)
    ]

    assert answers == [False, False, False]
    assert await row(store) == ProviderRow(2, "2")
    assert await store.providers.events("llm", limit=10) == []


async def test_a_version_of_something_that_is_not_there_makes_nothing(store: Store) -> None:
    assert not await store.providers.swap("llm", 7, "1", [("opened", "{}")])

    assert await row(store) is None
    assert await store.providers.events("llm", limit=10) == []


async def test_providers_are_read_together_and_named(store: Store) -> None:
    for name in ("speech", "llm"):
        await store.providers.swap(name, 0, f'"{name}"')

    _, rows = await store.providers.read(NAMES)

    assert rows == {"llm": ProviderRow(1, '"llm"'), "speech": ProviderRow(1, '"speech"')}
    assert await store.providers.names() == ["llm", "speech"]


async def test_of_many_who_write_the_first_state_one_succeeds(store: Store, other_store: Store) -> None:
    written = await racing(store, other_store, version=0)

    assert written.count(True) == 1
    assert await row(store) == ProviderRow(1, str(written.index(True)))
    assert len(await store.providers.events("llm", limit=100)) == 1


async def test_of_many_who_have_read_the_same_version_one_succeeds(store: Store, other_store: Store) -> None:
    await store.providers.swap("llm", 0, '"before"')

    written = await racing(store, other_store, version=1)

    assert written.count(True) == 1
    assert await row(store) == ProviderRow(2, str(written.index(True)))
    [event] = await store.providers.events("llm", limit=100)
    assert event.meta == {"by": written.index(True)}


async def racing(*stores: Store, version: int) -> list[bool]:
    """Let many replace the same version at once."""
    swaps = [
        store.providers.swap("llm", version, str(number), [("opened", json.dumps({"by": number}))])
        for number, store in enumerate(stores * 8)
    ]
    return list(await asyncio.gather(*swaps))


async def test_no_change_is_lost_when_all_try_until_they_succeed(store: Store, other_store: Store) -> None:
    async def raise_it(through: Store) -> None:
        while True:
            found = await row(through) or ProviderRow(0, "0")
            if await through.providers.swap("llm", found.version, str(int(found.state) + 1)):
                return

    await asyncio.gather(*(raise_it(each) for each in (store, other_store) * 5))

    assert await row(store) == ProviderRow(10, "10")


async def test_what_happened_is_noted_with_the_change_newest_first(
    store: Store, clock: DatabaseClock
) -> None:
    await store.providers.swap("llm", 0, "1", [("opened", '{"failures":11}'), ("held", "{}")])
    await clock.advance(timedelta(minutes=1))
    await store.providers.swap("llm", 1, "2", [("closed", "{}")])
    await store.providers.swap("speech", 0, "1", [("paused", "{}")])

    events = await store.providers.events("llm", limit=10)

    assert [(event.name, event.kind, event.meta) for event in events] == [
        ("llm", "closed", {}),
        ("llm", "held", {}),
        ("llm", "opened", {"failures": 11}),
    ]
    assert timedelta(minutes=1) <= events[0].at - events[1].at < timedelta(minutes=2)
    assert events[1].at == events[2].at
    assert [event.kind for event in await store.providers.events("llm", limit=2)] == ["closed", "held"]


async def test_what_happened_is_forgotten_beyond_the_last_thousand_of_each_provider(store: Store) -> None:
    await store.providers.swap("speech", 0, "1", [("opened", "{}")])
    await store.providers.swap(
        "llm", 0, "1", [("tried", f'{{"number":{number}}}') for number in range(1_200)]
    )
    await store.providers.swap("llm", 1, "2")
    await store.providers.swap("llm", 2, "3", [("closed", "{}")])

    events = await store.providers.events("llm", limit=5_000)

    assert 1_000 <= len(events) <= 1_001, "one statement does not see what it adds itself"
    assert [event.meta for event in events[:2]] == [{}, {"number": 1199}]
    assert len(await store.providers.events("speech", limit=10)) == 1


async def stored(store: Store, *stages: StageWrite) -> None:
    assert set(await store.settle("worker", stages)) == {Settled.WRITTEN}


async def stages_in_history(store: Store, job_id: str) -> dict[str, dict[str, Any]]:
    """What the history says about each stage."""
    events = [event for event in await store.events(job_id) if event.kind is EventKind.STAGE]
    return {event.meta["stage"]: dict(event.meta) for event in events}


async def test_the_history_says_which_provider_computed_a_stage(store: Store) -> None:
    claim = await a_claim(store)
    by_backup = a_stage(claim, "write")._replace(provider="llm-2")
    await stored(store, by_backup, a_stage(claim, "fetch"))

    metas = await stages_in_history(store, claim.id)

    assert metas["write"] == {"stage": "write", "attempt": 1, "status": "done", "provider": "llm-2"}
    assert metas["fetch"] == {"stage": "fetch", "attempt": 1, "status": "done"}


async def test_the_provider_of_the_last_write_of_a_stage_is_the_one_in_its_history(store: Store) -> None:
    claim = await a_claim(store)
    begun = a_stage(claim, "write", status=StageStatus.STARTED)._replace(provider="llm")
    await stored(store, begun)
    await stored(store, a_stage(claim, "write")._replace(provider="llm-2"))

    metas = await stages_in_history(store, claim.id)

    assert metas["write"]["provider"] == "llm-2"


async def test_a_retry_keeps_in_the_history_which_provider_failed_a_stage(store: Store) -> None:
    claim = await a_claim(store)
    failed = [a_stage(claim, name, status=StageStatus.FAILED) for name in ("write", "fetch")]
    await stored(store, failed[0]._replace(provider="llm"), failed[1])
    before = await stages_in_history(store, claim.id)
    await store.settle("worker", [Finish(claim.id, claim.token, Status.FAILED, failure=a_failure())])

    await store.retry(claim.id)

    assert await stages_in_history(store, claim.id) == before
    assert before["write"]["provider"] == "llm"
    assert "provider" not in before["fetch"]
