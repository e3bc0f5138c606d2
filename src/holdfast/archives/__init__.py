"""Archives: a folder of this machine, or an S3 bucket."""

import re
from urllib.parse import unquote, urlsplit

from holdfast.archives.fernet_encrypter import FernetEncrypter
from holdfast.archives.folder_archive import FolderArchive
from holdfast.archives.object_archive import ObjectArchive
from holdfast.core.errors import ConfigError
from holdfast.ports.archive import Archive
from holdfast.ports.system import Executor

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""Also without slashes: a mistyped address must not create a folder of that name."""

__all__ = ["FernetEncrypter", "FolderArchive", "ObjectArchive", "open_archive"]


def open_archive(url: str, *, executor: Executor) -> Archive:
    """Return the archive at *url*: `s3://bucket/prefix`, `file:///folder`, or the path of a folder.

    Does not connect yet. Raises `ConfigError` for another address, or if the packages for S3 are not installed.
    """
    if url.startswith("s3://"):
        return ObjectArchive(url, executor=executor)
    if url.startswith("file://"):
        address = urlsplit(url)
        if address.netloc not in ("", "localhost") or address.path in ("", "/"):
            raise _unknown_address(url)
        return FolderArchive(unquote(address.path), executor=executor)
    if not url.strip() or SCHEME.match(url):
        raise _unknown_address(url)
    return FolderArchive(url, executor=executor)


def _unknown_address(url: str) -> ConfigError:
    # Only the scheme: the rest of a wrong address may contain a password.
    scheme = SCHEME.match(url)
    return ConfigError(
        f"an archive's address must not begin with {scheme.group() if scheme else ''!r}; "
        "write s3://bucket/prefix, file:///folder, or the path of a folder"
    )
