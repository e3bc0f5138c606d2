"""The archive: where dead letters go before they are deleted, and what keeps their contents secret there."""

from typing import Protocol


class Archive(Protocol):
    """Bytes under names, written once and never changed. A name is plain: no folders, no leading dot.

    All of it may be asked again after an error or a cancelled wait, whether or not it was done.
    """

    async def put(self, name: str, data: bytes) -> None:
        """Store *data* under a new name; once this returns, it survives a loss of power.

        The same bytes under the same name are fine: that is a retry after a lost answer. Raises
        `ArchiveUnavailable` if that did not work, and `ArchiveDamaged` if the name holds other bytes, which stay.
        """
        ...

    async def get(self, name: str, *, at_most: int) -> bytes:
        """Return what was put under *name*. Raises `ArchiveMissing`, or `ArchiveUnavailable`.

        Raises `ArchiveDamaged`, having read no more than *at_most* bytes, if there are more.
        """
        ...

    async def names(self) -> list[str]:
        """Return all names, sorted. Raises `ArchiveUnavailable`, also if its place is gone."""
        ...


class Encrypter(Protocol):
    """Turns what is secret into text that may be kept anywhere, and back."""

    def encrypt(self, text: str) -> str:
        """Return a text that says nothing of *text* without the key."""
        ...

    def decrypt(self, text: str) -> str:
        """Return what `encrypt` was given. Raises `ArchiveDamaged` if it was changed, or the key is another."""
        ...
