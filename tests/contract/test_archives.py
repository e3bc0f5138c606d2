"""What is put into an archive stays there as it was, whole, whatever kind of archive it is."""

import asyncio
import errno
import gzip
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

import pytest
from obstore.store import S3Store

from holdfast.archives import FernetEncrypter, FolderArchive, ObjectArchive, open_archive
from holdfast.core.dead_letters.archive_format import (
    LetterEntry,
    decrypt_record,
    dump_manifest,
    encrypt_record,
    is_manifest,
    load_manifest,
    manifest_name,
    manifest_of,
    pack,
    unpack,
)
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing, ArchiveUnavailable, ConfigError
from holdfast.ports.archive import Archive, Encrypter
from holdfast.wiring.threads import Threads
from tests.acceptance.harness.disks import MEGABYTE, SmallDisk
from tests.acceptance.harness.prerequisites import PrerequisiteMissingError
from tests.contract.object_server import MAX_KEYS, ObjectServer, object_server
from tests.servers import in_ci

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PLENTY = 10_000_000
KEY = b"0123456789abcdef0123456789abcdef"
OTHER_KEY = KEY[::-1]


class ArchiveLocation(Protocol):
    """Where an archive is."""

    url: str

    def overwrite(self, name: str, data: bytes) -> None:
        """Change what is stored, as no archive would."""
        ...


class FolderLocation:
    def __init__(self, folder: Path) -> None:
        self.url = str(folder)

    def overwrite(self, name: str, data: bytes) -> None:
        Path(self.url, name).write_bytes(data)


class BucketLocation:
    def __init__(self, server: ObjectServer) -> None:
        self.url = f"{server.new_bucket()}/letters/of production"

    def overwrite(self, name: str, data: bytes) -> None:
        S3Store.from_url(self.url).put(name, data, mode="overwrite")


class NoThreads:
    """A machine that has no thread left."""

    def run(self, function: Callable[[], Any]) -> Awaitable[Any]:
        raise RuntimeError("can't start new thread")

    def close(self) -> None: ...


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectServer]:
    """The S3 that all tests of this file share."""
    with object_server() as server:
        yield server


@pytest.fixture
def server(objects: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """An S3 that this process finds."""
    objects.be_found(monkeypatch)
    return objects


@pytest.fixture(params=["folder", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveLocation:
    """The location of an archive, once for each kind."""
    if request.param == "folder":
        return FolderLocation(tmp_path / "archive")
    return BucketLocation(request.getfixturevalue("server"))


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads("test-archive")
    yield made
    made.close()


@pytest.fixture
def archive(location: ArchiveLocation, threads: Threads) -> Archive:
    return open_archive(location.url, executor=threads)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for an archive, which is not there yet."""
    return tmp_path / "archive"


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    """A disk of a megabyte, which can be filled; that takes the right to mount."""
    small = SmallDisk(megabytes=1)
    try:
        small.__enter__()
    except PrerequisiteMissingError as missing:
        if in_ci():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    yield small
    small.__exit__()


def an_entry() -> LetterEntry:
    return LetterEntry("job-1", "review", "RATE_LIMITED:app.py:review", NOON)


def a_record() -> dict[str, Any]:
    clear: dict[str, Any] = {
        "letter": {"job_id": "job-1"},
        "job": {"name": "review"},
        "steps": [],
        "events": [],
    }
    return clear | {"private": {"arguments": {"password": "hunter2"}}}


async def put_letters(archive: Archive, encrypter: Encrypter) -> None:
    packed = pack([encrypt_record(a_record(), encrypter.encrypt)])
    manifest = manifest_of(packed, [an_entry()], at=NOON)
    await archive.put(manifest.name, packed.data)
    await archive.put(manifest_name(manifest.name), dump_manifest(manifest, encrypter.encrypt))


async def get_letters(archive: Archive, encrypter: Encrypter) -> list[dict[str, Any]]:
    [name] = [name for name in await archive.names() if is_manifest(name)]
    manifest = load_manifest(await archive.get(name, at_most=PLENTY), encrypter.decrypt)
    return unpack(await archive.get(manifest.name, at_most=manifest.bytes), manifest)


def everything_in(folder: Path) -> list[str]:
    """List the files of *folder*, those too that an archive does not show."""
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("data", [b"", b"\x00\xff\r\n", b"letters" * MEGABYTE], ids=["none", "some", "7 MB"])
async def test_what_was_put_is_there_for_every_process_that_opens_the_archive(
    location: ArchiveLocation, archive: Archive, threads: Threads, data: bytes
) -> None:
    await archive.put("one", data)

    assert await open_archive(location.url, executor=threads).get("one", at_most=PLENTY) == data


async def test_names_are_sorted(archive: Archive) -> None:
    for name in ("letters-2.gz", "other", "letters-10.gz", "letters-1.gz"):
        await archive.put(name, b"x")

    assert await archive.names() == ["letters-1.gz", "letters-10.gz", "letters-2.gz", "other"]


async def test_an_archive_has_nothing_that_was_not_put(archive: Archive) -> None:
    await archive.put("other", b"x")

    with pytest.raises(ArchiveMissing, match=r"has no 'one'; check that it is the right"):
        await archive.get("one", at_most=PLENTY)


async def test_a_bucket_that_was_never_written_to_is_empty(server: ObjectServer, threads: Threads) -> None:
    assert await ObjectArchive(server.new_bucket(), executor=threads).names() == []


async def test_a_folder_that_is_not_there_is_not_taken_for_an_empty_one(
    folder: Path, threads: Threads
) -> None:
    """Its disk may not be mounted, or this process may run in another folder."""
    archive = FolderArchive(folder, executor=threads)

    with pytest.raises(ArchiveUnavailable, match=r"there is no folder .*/archive' yet; .* is mounted"):
        await archive.names()

    await archive.put("one", b"x")
    assert await archive.names() == ["one"]


async def test_no_more_is_read_than_was_asked_for(archive: Archive) -> None:
    await archive.put("one", b"12345")

    assert await archive.get("one", at_most=5) == b"12345"
    with pytest.raises(ArchiveDamaged, match=r"^one is damaged: it has more than the 4 bytes"):
        await archive.get("one", at_most=4)


async def test_the_same_bytes_may_be_put_again(archive: Archive) -> None:
    await archive.put("one", b"first")

    await archive.put("one", b"first")

    assert await archive.get("one", at_most=PLENTY) == b"first"
    assert await archive.names() == ["one"]


@pytest.mark.parametrize("data", [b"", b"other", b"first and more"])
async def test_what_is_there_is_never_replaced(archive: Archive, data: bytes) -> None:
    await archive.put("one", b"first")

    with pytest.raises(ArchiveDamaged, match=r"has different data under .* inspect it, and move it away"):
        await archive.put("one", data)

    assert await archive.get("one", at_most=PLENTY) == b"first"
    assert await archive.names() == ["one"]


async def test_of_many_who_put_one_name_at_once_one_succeeds(archive: Archive) -> None:
    puts = [archive.put("one", b"%d" % number) for number in range(8)]

    outcomes = await asyncio.gather(*puts, return_exceptions=True)

    [winner] = [number for number, outcome in enumerate(outcomes) if outcome is None]
    assert await archive.get("one", at_most=PLENTY) == b"%d" % winner
    assert all(isinstance(outcome, ArchiveDamaged) for outcome in outcomes if outcome is not None)


@pytest.mark.parametrize("name", ["", "../one", "/one", "a/b", ".one"])
async def test_no_name_leads_out_of_the_archive(archive: Archive, name: str) -> None:
    with pytest.raises(ValueError, match="is no name in an archive"):
        await archive.put(name, b"x")
    with pytest.raises(ValueError, match="is no name in an archive"):
        await archive.get(name, at_most=PLENTY)


async def test_letters_come_back_as_they_were(archive: Archive) -> None:
    encrypter = FernetEncrypter(KEY)

    await put_letters(archive, encrypter)

    assert [
        decrypt_record(record, encrypter.decrypt) for record in await get_letters(archive, encrypter)
    ] == [a_record()]


async def test_an_archive_holds_no_secret_in_the_clear(archive: Archive) -> None:
    await put_letters(archive, FernetEncrypter(KEY))

    for name in await archive.names():
        data = await archive.get(name, at_most=PLENTY)
        readable = data if is_manifest(name) else gzip.decompress(data)
        assert b"review" in readable
        assert b"hunter2" not in readable


async def test_bytes_that_changed_in_the_archive_are_not_taken_for_letters(
    location: ArchiveLocation, archive: Archive
) -> None:
    await put_letters(archive, FernetEncrypter(KEY))
    [name] = [name for name in await archive.names() if not is_manifest(name)]
    good = await archive.get(name, at_most=PLENTY)

    location.overwrite(name, good[:-1])

    with pytest.raises(ArchiveDamaged, match=r"do not have the SHA-256 that its manifest names"):
        await get_letters(archive, FernetEncrypter(KEY))


async def test_letters_that_another_key_encrypted_are_not_decrypted(archive: Archive) -> None:
    await put_letters(archive, FernetEncrypter(KEY))
    [record] = await get_letters(archive, FernetEncrypter(KEY))

    with pytest.raises(ArchiveDamaged, match=r"encrypted with another key, or changed; give the key"):
        decrypt_record(record, FernetEncrypter(OTHER_KEY).decrypt)


async def test_a_manifest_that_another_key_signed_is_not_read(archive: Archive) -> None:
    await put_letters(archive, FernetEncrypter(KEY))

    with pytest.raises(ArchiveDamaged, match=r"encrypted with another key, or changed; give the key"):
        await get_letters(archive, FernetEncrypter(OTHER_KEY))


async def test_a_machine_without_threads_is_an_archive_that_is_away(location: ArchiveLocation) -> None:
    archive = open_archive(location.url, executor=NoThreads())

    with pytest.raises(ArchiveUnavailable, match="cannot be reached: can't start new thread"):
        await archive.put("one", b"x")


async def test_a_full_disk_leaves_nothing_behind(disk: SmallDisk, threads: Threads) -> None:
    archive = FolderArchive(disk.folder / "archive", executor=threads)
    await archive.put("before", b"x")
    disk.fill()

    with pytest.raises(ArchiveUnavailable, match=r"the disk of the archive .* is full; free some space"):
        await archive.put("one", bytes(MEGABYTE))

    assert everything_in(disk.folder / "archive") == ["before"]
    disk.free()
    await archive.put("one", b"x")
    assert await archive.names() == ["before", "one"]


async def test_a_disk_that_cannot_be_written_is_named(disk: SmallDisk, threads: Threads) -> None:
    remount = ["mount", "-o", "remount,ro", str(disk.folder)]
    subprocess.run(remount, check=True, capture_output=True, timeout=30)

    with pytest.raises(ArchiveUnavailable, match=r"cannot be written: .*; give this user write permission"):
        await FolderArchive(disk.folder / "archive", executor=threads).put("one", b"x")


async def test_a_file_in_the_place_of_the_folder_is_reported(folder: Path, threads: Threads) -> None:
    folder.write_text("not a folder")
    archive = FolderArchive(folder, executor=threads)

    for asked in (archive.put("one", b"x"), archive.get("one", at_most=PLENTY), archive.names()):
        with pytest.raises(ArchiveUnavailable, match="check that it is a folder"):
            await asked


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EIO])
async def test_without_its_name_nothing_of_a_file_stays(
    folder: Path, threads: Threads, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(ArchiveUnavailable, match=os.strerror(number)):
        await FolderArchive(folder, executor=threads).put("one", b"x")

    assert everything_in(folder) == []


KILLED_BEFORE_THE_NAME = """
import asyncio, os, signal, sys
from holdfast.archives import open_archive
from holdfast.wiring.threads import Threads

os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

async def main():
    await open_archive(sys.argv[1], executor=Threads("archive")).put("one", b"first")

asyncio.run(main())
"""


async def test_a_process_that_is_killed_leaves_no_half_file_under_its_name(
    folder: Path, threads: Threads
) -> None:
    command = [sys.executable, "-c", KILLED_BEFORE_THE_NAME, str(folder)]
    ended = subprocess.run(command, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    archive = FolderArchive(folder, executor=threads)

    assert await archive.names() == []
    with pytest.raises(ArchiveMissing):
        await archive.get("one", at_most=PLENTY)

    await archive.put("one", b"second")
    assert await archive.get("one", at_most=PLENTY) == b"second"


class Disk:
    """Notes in which order things reach the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happened: list[str] = []
        self._sync, self._link = os.fsync, os.link
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "link", self.link)

    def fsync(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        self.happened.append("file" if path.endswith(".part") else f"folder {Path(path).name}")
        self._sync(handle)

    def link(self, source: Path, target: Path) -> None:
        self.happened.append("name")
        self._link(source, target)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what a handle is")
async def test_bytes_are_on_the_disk_before_their_name_and_the_name_before_the_answer(
    tmp_path: Path, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    archive = FolderArchive(above / "new" / "archive", executor=threads)
    disk = Disk(monkeypatch)

    await archive.put("one", b"first")
    assert disk.happened == ["folder above", "folder new", "file", "name", "folder archive"]

    disk.happened.clear()
    await archive.put("one", b"first")
    assert disk.happened[-1] == "folder archive"


async def test_a_folder_and_its_files_are_for_their_owner_alone(folder: Path, threads: Threads) -> None:
    await FolderArchive(folder, executor=threads).put("one", b"x")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "one").stat().st_mode) == 0o600


async def test_a_folder_shows_only_what_was_put(folder: Path, threads: Threads) -> None:
    archive = FolderArchive(folder, executor=threads)
    await archive.put("one", b"x")
    (folder / "lost+found").mkdir()
    (folder / ".one.part").touch()

    assert await archive.names() == ["one"]


async def test_a_bucket_that_is_not_there_is_reported(server: ObjectServer, threads: Threads) -> None:
    archive = ObjectArchive("s3://never-made/letters", executor=threads)

    for asked in (archive.put("one", b"x"), archive.get("one", at_most=PLENTY), archive.names()):
        with pytest.raises(ArchiveUnavailable, match=r"404.*; check that the bucket exists") as caught:
            await asked
        assert "\n" not in str(caught.value)


async def test_two_archives_in_one_bucket_do_not_see_each_other(
    server: ObjectServer, threads: Threads
) -> None:
    bucket = server.new_bucket()
    above, below = (ObjectArchive(f"{bucket}{prefix}", executor=threads) for prefix in ("", "/letters/"))
    await above.put("one", b"above")
    await below.put("one", b"below")

    assert await above.names() == await below.names() == ["one"]
    assert (await above.get("one", at_most=PLENTY), await below.get("one", at_most=PLENTY)) == (
        b"above",
        b"below",
    )


async def test_more_names_than_one_answer_holds_are_all_listed(
    server: ObjectServer, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MAX_KEYS, "2")
    archive = ObjectArchive(server.new_bucket(), executor=threads)
    for number in range(5):
        await archive.put(f"letters-{number}", b"x")

    assert await archive.names() == [f"letters-{number}" for number in range(5)]


REFUSED = """
import asyncio
from holdfast.archives import open_archive
from holdfast.core.errors import ArchiveUnavailable
from holdfast.wiring.threads import Threads

async def main():
    try:
        await open_archive("s3://bucket/letters", executor=Threads("archive")).put("one", b"first")
    except ArchiveUnavailable as caught:
        print(caught)

asyncio.run(main())
"""


def test_a_process_whose_bucket_is_away_gets_an_error_and_ends_well(server: ObjectServer) -> None:
    unreachable = os.environ | {"AWS_ENDPOINT": "http://127.0.0.1:9"}

    ended = subprocess.run(
        [sys.executable, "-c", REFUSED],
        env=unreachable,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("the archive 's3://bucket/letters' cannot be used: ")


def test_an_address_is_a_bucket_or_a_folder(tmp_path: Path, threads: Threads) -> None:
    assert isinstance(open_archive("s3://bucket", executor=threads), ObjectArchive)
    for url in ("archive", "./odd:name", "/var/archive", "file:///var/archive", "file://localhost/archive"):
        assert isinstance(open_archive(url, executor=threads), FolderArchive)


async def test_a_folder_is_found_by_its_url(folder: Path, threads: Threads) -> None:
    with_space = folder / "dead letters"
    await open_archive(str(with_space), executor=threads).put("one", b"x")

    assert await open_archive(with_space.as_uri(), executor=threads).get("one", at_most=PLENTY) == b"x"


@pytest.mark.parametrize(
    "url", ["", " ", "s3:/bucket", "gs://user:hunter2@bucket", "https://host/x", "file://host/x", "file://"]
)
def test_another_address_is_refused_in_one_line(url: str, threads: Threads) -> None:
    with pytest.raises(ConfigError, match=r"write s3://bucket/prefix, file:///folder, or the path") as caught:
        open_archive(url, executor=threads)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///letters", "s3://key:hunter2@bucket"])
def test_a_bucket_needs_a_name_and_keeps_no_keys_in_its_address(url: str, threads: Threads) -> None:
    with pytest.raises(ConfigError, match=r"must be s3://bucket/prefix; keys come from AWS_") as caught:
        open_archive(url, executor=threads)

    assert "hunter2" not in str(caught.value)


def test_what_is_not_installed_is_named(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("obstore", "cryptography.fernet"):
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ConfigError, match=r"needs obstore; .* pip install 'holdfast\[archive\]'"):
        open_archive("s3://bucket", executor=threads)
    with pytest.raises(ConfigError, match=r"needs cryptography; .* pip install 'holdfast\[archive\]'"):
        FernetEncrypter(KEY)
