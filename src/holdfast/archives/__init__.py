"""Archives: a folder of this machine, or a bucket that speaks S3."""

import re
from urllib.parse import unquote, urlsplit

from holdfast.archives.encrypter import FernetEncrypter
from holdfast.archives.folder import FolderArchive
from holdfast.archives.objects import ObjectArchive
from holdfast.core.errors import ConfigError
from holdfast.ports.archive import Archive
from holdfast.ports.world import Executor

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""Also without slashes: a mistyped address must not become a folder of that name."""

__all__ = ["FernetEncrypter", "FolderArchive", "ObjectArchive", "open_archive"]


def open_archive(url: str, *, executor: Executor) -> Archive:
    """Give the archive at *url*: `s3://bucket/prefix`, `file:///folder`, or the path of a folder.

    Nothing is reached yet. Raises `ConfigError` for another address, or if what S3 needs is not installed.
    """
    if url.startswith("s3://"):
        return ObjectArchive(url, executor=executor)
    if url.startswith("file://"):
        return FolderArchive(_path(url), executor=executor)
    if not url.strip() or SCHEME.match(url):
        raise _unknown(url)
    return FolderArchive(url, executor=executor)


def _path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.path in ("", "/"):
        raise _unknown(url)
    return unquote(parts.path)


def _unknown(url: str) -> ConfigError:
    # Only how it begins: the rest of a wrong address may be a password.
    scheme = SCHEME.match(url)
    return ConfigError(
        f"there is no archive at an address that begins with {scheme.group() if scheme else ''!r}; "
        "write s3://bucket/prefix, file:///folder, or the path of a folder"
    )
