"""The archive and the options of dead letters in a test."""

from dataclasses import replace

from holdfast.channels.ticket_webhook import TicketWebhook
from holdfast.core.errors import ArchiveDamaged, ArchiveMissing
from holdfast.engine.options import LetterOptions
from holdfast.ports.archive import Archive


class MemoryArchive:
    """An archive in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, name: str, data: bytes) -> None:
        if self._kept.setdefault(name, data) != data:
            raise ArchiveDamaged(f"the archive has different data under {name!r}, which was not changed")

    async def get(self, name: str, *, at_most: int) -> bytes:
        if name not in self._kept:
            raise ArchiveMissing(f"the archive has nothing under {name!r}")
        return self._kept[name]

    async def names(self) -> list[str]:
        return sorted(self._kept)


def isolated_letter_options(letters: LetterOptions, archive: Archive) -> LetterOptions:
    """Return the options of an application without its real archive and its webhook."""
    hooks = [hook for hook in letters.hooks if not isinstance(hook, TicketWebhook)]
    return replace(letters, hooks=hooks, archive=None if letters.archive is None else archive)
