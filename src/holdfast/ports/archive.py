"""The archive, to which dead letters are written before they are deleted, and the encryption of their contents."""

from typing import Protocol


class Archive(Protocol):
    """Files by name, written once and never changed. A name has no folder and no leading dot.

    Every operation may be repeated after an error or a cancellation, whether or not it took effect.
    """

    async def put(self, name: str, data: bytes) -> None:
        """Store *data* under a new name; once this returns, it survives a loss of power.

        The same bytes may be stored again under the same name: a retry after a lost answer. Raises
        `ArchiveUnavailable` if the write failed, and `ArchiveDamaged` if the name holds other bytes, which stay.
        """
        ...

    async def get(self, name: str, *, at_most: int) -> bytes:
        """Return what was put under *name*. Raises `ArchiveMissing`, or `ArchiveUnavailable`.

        Raises `ArchiveDamaged`, having read no more than *at_most* bytes, if there are more.
        """
        ...

    async def names(self) -> list[str]:
        """Return all names, sorted. Raises `ArchiveUnavailable`, also if the folder or bucket does not exist."""
        ...


class Encrypter(Protocol):
    """Encrypts text, and decrypts it."""

    def encrypt(self, text: str) -> str:
        """Return *text* encrypted."""
        ...

    def decrypt(self, text: str) -> str:
        """Return what `encrypt` was given. Raises `ArchiveDamaged` if it was changed, or encrypted with another key."""
        ...
