"""The part of a store with the announcements of jobs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.core.messages.announcements import PendingAnnouncement, RenderedAnnouncement


class AnnouncementStore(Protocol):
    """The operations of a store on announcements. The statements that end or requeue jobs write them."""

    async def take(self, names: Sequence[str], *, limit: int, lease: timedelta) -> list[PendingAnnouncement]:
        """Take announcements of jobs with these *names* that are due; no other worker gets them for *lease*.

        Of one job, only the oldest is taken.
        """
        ...

    async def publish(self, batch: Sequence[RenderedAnnouncement]) -> int:
        """Store the messages in the outbox and delete their announcements, in one transaction; return how many of *batch*.

        One that another worker has taken since is left to it.
        """
        ...

    async def postpone(self, taken: PendingAnnouncement, delay: timedelta) -> None:
        """Let an announcement be taken again after *delay*, unless another worker has taken it since."""
        ...

    async def again(self, job_id: str) -> bool:
        """Announce the end of a job once more; return false if it has not ended, or its end is not announced.

        While an announcement of that end is still to be published, there is no other.
        """
        ...
