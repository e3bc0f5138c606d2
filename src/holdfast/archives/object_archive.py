"""An archive in an S3 bucket."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from holdfast.core.dead_letters.archive_format import ensure_name, ensure_size
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing, ArchiveUnavailable, ConfigError
from holdfast.ports.system import Executor

if TYPE_CHECKING:
    from obstore.store import S3Store

T = TypeVar("T")

RETRIES = 3
RETRY_TIMEOUT = timedelta(minutes=1)
"""How long a failed request is retried; a single try has the client's timeout of 30 seconds."""


class ObjectArchive:
    """Objects below `s3://bucket/prefix`. Keys, region and endpoint come from the AWS_* environment variables.

    The service must support conditional writes, as S3 does: without them an object could be replaced.
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
        # In a thread of Holdfast, not with the client's coroutines: after those, the client's threads may abort the
        # interpreter when it exits.
        try:
            return await self._executor.run(function)
        except RuntimeError as error:
            raise ArchiveUnavailable(f"the archive {self._url!r} cannot be reached: {error}") from error

    def _put(self, name: str, data: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an extra

        with self._translate_errors():
            try:
                self._store().put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                self._ensure_same(name, data)

    def _get(self, name: str, at_most: int) -> bytes:
        with self._translate_errors():
            try:
                return ensure_size(name, self._read(name, at_most + 1), at_most)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                raise ArchiveMissing(
                    f"the archive {self._url!r} has no {name!r}; check that it is the right bucket and prefix"
                ) from error

    def _names(self) -> list[str]:
        with self._translate_errors():
            return sorted(entry["path"] for entry in self._store().list_with_delimiter()["objects"])

    def _read(self, name: str, at_most: int) -> bytes:
        """Read *name*, at most *at_most* bytes of it."""
        read = bytearray()
        for chunk in self._store().get(name):
            read += chunk
            if len(read) >= at_most:
                break
        return bytes(read[:at_most])

    def _ensure_same(self, name: str, data: bytes) -> None:
        if self._read(name, len(data) + 1) != data:
            raise ArchiveDamaged(
                f"the archive has different data under {self._url}/{name}, which was not changed; "
                "inspect it, and move it away if it does not belong there"
            )

    def _store(self) -> "S3Store":
        """Open the bucket at its first use: the client's threads do not survive a fork."""
        from obstore.store import S3Store  # noqa: PLC0415 - an extra

        if self._opened is None:
            self._opened = S3Store.from_url(
                self._url, retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT}
            )
        return self._opened

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

        try:
            yield
        except (BaseError, OSError) as error:
            raise ArchiveUnavailable(
                f"the archive {self._url!r} cannot be used: {_first_line(error)}; "
                "check that the bucket exists, and the AWS_* variables of this process"
            ) from error


def _first_line(error: Exception) -> str:
    """Omit the client's debug output and the service's XML."""
    return str(error).partition("\n")[0].partition(": <?xml")[0]


def _ensure_bucket(url: str) -> None:
    host = urlsplit(url).netloc
    if not host or "@" in host:
        raise ConfigError(
            "the archive's address must be s3://bucket/prefix; "
            "keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )


def _ensure_installed() -> None:
    try:
        import obstore  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            "an archive in S3 needs obstore; install it with: pip install 'holdfast[archive]'"
        ) from error
