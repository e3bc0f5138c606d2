"""A Holdfast that was closed can be used again, also from another event loop."""

import asyncio
from pathlib import Path

import pytest

from holdfast import Holdfast, PayloadInvalid


def test_a_closed_holdfast_works_again_in_another_event_loop(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")

    @hold.job("double")
    async def double(n: int) -> int:
        return 2 * n

    async def once(n: int) -> int:
        async with hold, hold.worker(poll=0.05):
            return await (await double.submit(n)).result(timeout=20)

    assert [asyncio.run(once(n)) for n in (1, 2)] == [2, 4]


async def test_a_broken_worker_ends_the_block_that_runs_beside_it(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    async with hold:
        with pytest.raises(TypeError):
            async with hold.worker(slots="many"):  # type: ignore[arg-type]  # what a careless caller may pass
                await asyncio.Event().wait()


@pytest.mark.parametrize("options", [{"key": ""}, {"subject": "", "version": 1}, {"key": "a\x00b"}])
def test_an_empty_or_unprintable_key_is_refused(tmp_path: Path, options: dict[str, str]) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")

    @hold.job("noop")
    async def noop() -> None: ...

    with pytest.raises(PayloadInvalid, match="printable text of 1 to 200"):
        noop.options(**options)  # type: ignore[arg-type]  # what a careless caller may pass
