"""The archive of a simulated world: it fails, is slow, keeps what it says that it lost, and outlives all processes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import TYPE_CHECKING, Any

from holdfast.core.dead_letters.archive_format import (
    decrypt_record,
    ensure_size,
    is_manifest,
    load_manifest,
    unpack,
)
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing, ArchiveUnavailable

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Callable

    from tests.simulation.processes import Process

ARCHIVE_FAILURES = ("away", "answer lost", "slow", "torn")


class SimulatedArchive:
    """What all processes have archived."""

    def __init__(
        self,
        chance: random.Random,
        injected: Counter[str],
        complain: Callable[[str], None],
        *,
        failing: float,
    ) -> None:
        self.files: dict[str, bytes] = {}
        self.failing = failing
        self._chance = chance
        self._injected = injected
        self._complain = complain

    def newest(self, job_id: str) -> dict[str, Any] | None:
        """Read the last record of a job's letter that can be found: one that a manifest lists."""
        records = [record for record in self._records() if record["letter"]["job_id"] == job_id]
        return max(records, key=_age, default=None)

    def job_ids(self) -> list[str]:
        """Name the jobs of which there is a letter."""
        return sorted({record["letter"]["job_id"] for record in self._records()})

    def _records(self) -> list[dict[str, Any]]:
        manifests = [
            load_manifest(data, Base64Encrypter().decrypt)
            for name, data in self.files.items()
            if is_manifest(name)
        ]
        encrypter = Base64Encrypter()
        return [
            decrypt_record(record, encrypter.decrypt)
            for manifest in manifests
            for record in unpack(self.files[manifest.name], manifest)
        ]

    async def put(self, name: str, data: bytes) -> None:
        """Take a file, or seem to."""
        failure = await self._failure()
        if failure == "away":
            raise ArchiveUnavailable("the archive is unavailable")
        kept = self.files.get(name, data)
        if kept != data:
            raise ArchiveDamaged(f"{name} holds other bytes")
        if is_manifest(name):
            self._check(data)
        else:
            data = data[: len(data) // 2] if failure == "torn" else data
        self.files[name] = data
        if failure == "answer lost":
            raise ArchiveUnavailable("the answer of the archive was lost")

    async def get(self, name: str, *, at_most: int) -> bytes:
        """Give a file out."""
        if await self._failure() in ("away", "answer lost"):
            raise ArchiveUnavailable("the archive is unavailable")
        if name not in self.files:
            raise ArchiveMissing(f"there is no {name}")
        return ensure_size(name, self.files[name], at_most)

    async def names(self) -> list[str]:
        """Name all files."""
        if await self._failure() in ("away", "answer lost"):
            raise ArchiveUnavailable("the archive is unavailable")
        return sorted(self.files)

    def _check(self, data: bytes) -> None:
        """A manifest lists records that are there, byte for byte."""
        manifest = load_manifest(data, Base64Encrypter().decrypt)
        kept = self.files.get(manifest.name, b"")
        if hashlib.sha256(kept).hexdigest() != manifest.sha256:
            self._complain(f"there is a manifest of {manifest.name}, and that is not whole")

    async def _failure(self) -> str | None:
        await asyncio.sleep(self._chance.uniform(0.001, 0.2))
        if self._chance.random() >= self.failing:
            return None
        failure = self._chance.choice(ARCHIVE_FAILURES)
        self._injected[f"archive: {failure}"] += 1
        if failure == "slow":
            await asyncio.sleep(self._chance.uniform(1.0, 20.0))
        return failure


class ArchiveClient:
    """The archive as one process calls it: every call may fail."""

    def __init__(self, simulated_archive: SimulatedArchive, process: Process) -> None:
        self._archive = simulated_archive
        self._process = process

    async def put(self, name: str, data: bytes) -> None:
        """Store a file."""
        await self._process.call(
            "archive.put", lambda: self._archive.put(name, data), error=ArchiveUnavailable
        )

    async def get(self, name: str, *, at_most: int) -> bytes:
        """Read a file."""
        return await self._process.call(
            "archive.get", lambda: self._archive.get(name, at_most=at_most), error=ArchiveUnavailable
        )

    async def names(self) -> list[str]:
        """List the files."""
        return await self._process.call("archive.names", self._archive.names, error=ArchiveUnavailable)


class Base64Encrypter:
    """Encodes without a key: the same text gives the same bytes each time, so that a seed brings about the same files."""

    def encrypt(self, text: str) -> str:
        """Encode the text."""
        return base64.b64encode(text.encode()).decode()

    def decrypt(self, text: str) -> str:
        """Decode the text."""
        return base64.b64decode(text).decode()


def _age(record: dict[str, Any]) -> tuple[int, int]:
    return (record["letter"]["generation"], record["letter"]["version"])
