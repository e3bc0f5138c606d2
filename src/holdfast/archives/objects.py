"""An archive in a bucket that speaks S3."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from holdfast.core.dead_letters.archive_format import ensure_name, ensure_size
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing, ArchiveUnavailable, ConfigError
from holdfast.ports.world import Executor

if TYPE_CHECKING:
    from obstore.store import S3Store

T = TypeVar("T")

RETRIES = 3
PATIENCE = timedelta(minutes=1)
"""How long failed requests are repeated; each one alone is given up after the client's 30 seconds."""


class ObjectArchive:
    """Objects below `s3://bucket/prefix`. Keys, region and endpoint come from AWS's own environment variables.

    The service has to know conditional writes, as S3 itself does: without them an object could be replaced.
    """

    def __init__(self, url: str, *, executor: Executor) -> None:
        _ensure_bucket(url)
        _ensure_installed()
        self._url = url.rstrip("/")
        self._executor = executor
        self._opened: S3Store | None = None

    async def put(self, name: str, data: bytes) -> None:
        ensure_name(name)
        await self._run(lambda: self._put(name, data))

    async def get(self, name: str, *, at_most: int) -> bytes:
        ensure_name(name)
        return await self._run(lambda: self._get(name, at_most))

    async def names(self) -> list[str]:
        return await self._run(self._names)

    async def _run(self, function: Callable[[], T]) -> T:
        # In a thread of ours, not with the client's coroutines: after those, its own threads may abort the
        # interpreter when it exits.
        try:
            return await self._executor.run(function)
        except RuntimeError as error:
            raise ArchiveUnavailable(f"the archive {self._url!r} cannot be reached: {error}") from error

    def _put(self, name: str, data: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an extra

        with self._translated():
            try:
                self._store().put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                self._ensure_same(name, data)

    def _get(self, name: str, at_most: int) -> bytes:
        with self._translated():
            try:
                return ensure_size(name, self._read(name, at_most + 1), at_most)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                raise ArchiveMissing(
                    f"the archive {self._url!r} has no {name!r}; check that it is the right bucket and prefix"
                ) from error

    def _names(self) -> list[str]:
        with self._translated():
            return sorted(entry["path"] for entry in self._store().list_with_delimiter()["objects"])

    def _read(self, name: str, at_most: int) -> bytes:
        """Read *name*, or as much of it as is asked for."""
        read = bytearray()
        for chunk in self._store().get(name):
            read += chunk
            if len(read) >= at_most:
                break
        return bytes(read[:at_most])

    def _ensure_same(self, name: str, data: bytes) -> None:
        if self._read(name, len(data) + 1) != data:
            raise ArchiveDamaged(
                f"the archive has something else under {self._url}/{name} already, which was left as it is; "
                "look at it, and move it away if it does not belong there"
            )

    def _store(self) -> "S3Store":
        """Open the bucket when it is first needed: the client's threads do not come along into a forked process."""
        from obstore.store import S3Store  # noqa: PLC0415 - an extra

        if self._opened is None:
            self._opened = S3Store.from_url(
                self._url, retry_config={"max_retries": RETRIES, "retry_timeout": PATIENCE}
            )
        return self._opened

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

        try:
            yield
        except (BaseError, OSError) as error:
            raise ArchiveUnavailable(
                f"the archive {self._url!r} cannot be used: {_first_line(error)}; "
                "check that the bucket is there, and the AWS_* variables of this process"
            ) from error


def _first_line(error: Exception) -> str:
    """Leave out what the client adds for its own authors, and the service's XML."""
    return str(error).partition("\n")[0].partition(": <?xml")[0]


def _ensure_bucket(url: str) -> None:
    host = urlsplit(url).netloc
    if not host or "@" in host:
        raise ConfigError(
            "the archive's address has to be s3://bucket/prefix; "
            "keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )


def _ensure_installed() -> None:
    try:
        import obstore  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            "an archive in S3 needs obstore; install it with: pip install 'holdfast[archive]'"
        ) from error
