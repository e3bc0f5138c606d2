"""What is archived can be read with the key that it was encrypted with, and not without."""

import gzip
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from holdfast import Holdfast, JobFunction
from holdfast.errors import ArchiveDamaged
from tests.contract.archive.conftest import HOUR, Opening
from tests.contract.conftest import DatabaseClock
from tests.contract.letters import failed

OLD_KEY, NEW_KEY = "an old key of thirty-two characters", "a new key of thirty-two characters"


def opening_with(
    opening: Opening, keys: str | None, monkeypatch: pytest.MonkeyPatch
) -> AbstractAsyncContextManager[Holdfast]:
    """Open a Holdfast whose environment has these keys for the archive, or none."""
    if keys is None:
        monkeypatch.delenv("HOLDFAST_ARCHIVE_KEY", raising=False)
    else:
        monkeypatch.setenv("HOLDFAST_ARCHIVE_KEY", keys)
    return opening()


def slow(hold: Holdfast) -> JobFunction[[str], None]:
    @hold.job("essay", attempts=1)
    async def essay(text: str) -> None:
        raise TimeoutError("slow")

    return essay


def records(folder: Path) -> str:
    return "".join(gzip.decompress(file.read_bytes()).decode() for file in sorted(folder.glob("*.gz")))


@pytest.mark.clause("DLQ-3")
async def test_what_is_archived_cannot_be_read_without_the_key(
    hold: Holdfast, clock: DatabaseClock, folder: Path
) -> None:
    job_id = await failed(hold, slow(hold), "once upon a midnight dreary")
    await clock.advance(HOUR)
    assert await hold.dead_letters.archive() == 1

    stored = records(folder)
    assert (job_id in stored, "midnight" in stored) == (True, False)
    await hold.dead_letters.restore(job_id)
    assert json.loads((await hold.read(job_id)).args) == {"text": "once upon a midnight dreary"}


@pytest.mark.parametrize("before", [OLD_KEY, None])
async def test_a_new_key_encrypts_and_the_key_after_it_decrypts_what_was_archived_before(
    opening: Opening, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    async with opening_with(opening, before, monkeypatch) as hold:
        old = await failed(hold, slow(hold), "once upon a midnight dreary")
        await clock.advance(HOUR)
        await hold.dead_letters.archive()

    keys = NEW_KEY if before is None else f"{NEW_KEY}, {before}"
    async with opening_with(opening, keys, monkeypatch) as hold:
        new = await failed(hold, slow(hold), "while I nodded, nearly napping")
        await clock.advance(HOUR)
        await hold.dead_letters.archive()
        await hold.dead_letters.restore(old)
    async with opening_with(opening, NEW_KEY, monkeypatch) as hold:
        await hold.dead_letters.restore(new)
        texts = [json.loads((await hold.read(job_id)).args)["text"] for job_id in (old, new)]

    assert texts == ["once upon a midnight dreary", "while I nodded, nearly napping"]


async def test_what_was_encrypted_with_a_key_that_is_not_given_cannot_be_decrypted(
    opening: Opening, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opening_with(opening, OLD_KEY, monkeypatch) as hold:
        job_id = await failed(hold, slow(hold), "once upon a midnight dreary")
        await clock.advance(HOUR)
        await hold.dead_letters.archive()

    async with opening_with(opening, NEW_KEY, monkeypatch) as hold:
        with pytest.raises(
            ArchiveDamaged, match="give the key that it was encrypted with, after the current one"
        ):
            await hold.dead_letters.restore(job_id)
