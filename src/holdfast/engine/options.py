"""The options of a worker, and of the services for dead letters."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from holdfast.core.dead_letters.retention import Retention
from holdfast.core.dead_letters.ticket import Ticket
from holdfast.core.durations import Duration, parse_durations
from holdfast.core.errors import ConfigError
from holdfast.ports.archive import Archive, Encrypter

Hook = Callable[[Ticket], Awaitable[None] | None]
"""A function, plain or async, that is called with each ticket at least once."""

TicketsPer = Literal["letter", "group"]


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Slots, queues and durations of a worker."""

    slots: int = 100
    queues: Sequence[str] | Mapping[str, int] = ("default",)
    """In the order in which they are claimed from; or with weights, which make it random."""
    lease: timedelta = timedelta(seconds=90)
    grace: timedelta = timedelta(seconds=30)
    poll: timedelta = timedelta(seconds=1)

    if TYPE_CHECKING:  # durations are given in any form, and read as timedelta

        def __init__(
            self,
            slots: int = ...,
            queues: Sequence[str] | Mapping[str, int] = ...,
            lease: Duration = ...,
            grace: Duration = ...,
            poll: Duration = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Raise `ConfigError` for options with which a worker would run nothing, or never rest."""
        try:
            parse_durations(self, "lease", "grace", "poll")
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if not isinstance(self.slots, int) or self.slots < 1:
            raise ConfigError(f"slots={self.slots!r} runs nothing; give a worker at least one")
        if not self.queues:
            raise ConfigError("a worker without queues runs nothing; name at least one")
        if not all(self.queues):
            raise ConfigError("a queue without a name has no jobs; name it, or leave it out")
        if isinstance(self.queues, Mapping) and not all(weight > 0 for weight in self.queues.values()):
            raise ConfigError(f"queues={dict(self.queues)!r} has a weight below one; leave such a queue out")
        for name, length in (("lease", self.lease), ("poll", self.poll)):
            if not length:
                raise ConfigError(f"{name} must be positive, for example 1s")


def _no_encrypter(_: bytes) -> Encrypter:
    raise ConfigError(
        "archiving needs a key and the packages for encryption; install them with: pip install 'holdfast[archive]'"
    )


@dataclass(frozen=True, slots=True)
class LetterOptions:
    """Options of the services for dead letters."""

    code_version: str = ""
    """The version of the application; empty if it is not configured."""
    retention: Retention = field(default_factory=Retention)
    tickets_per: TicketsPer = "letter"
    hooks: list[Hook] = field(default_factory=list)
    archive: Archive | None = None
    encrypter_of: Callable[[bytes], Encrypter] = _no_encrypter
    """Makes the encrypter of the archive, from the store's own key if no other is configured."""
    poll_interval: timedelta = timedelta(seconds=2)
    """How often a worker polls for replay plans and tickets."""

    def named_archive(self) -> Archive:
        """Return the archive. Raises `ConfigError` if none is configured."""
        if self.archive is None:
            raise ConfigError(
                "there is no archive; name a folder or a bucket: Holdfast(archive=…) or HOLDFAST_ARCHIVE_URL"
            )
        return self.archive
