"""The retention of ended jobs, dead letters, keys and messages."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.core.durations import Duration, parse_durations


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept; `None` means for ever.

    Dead letters leave for the archive, the oldest first; without an archive none is ever deleted. A key outlives its
    job: as long as it is kept, nothing runs twice for it.
    """

    letters: timedelta | None = timedelta(days=7)
    most_letters: int | None = 10_000
    finished: timedelta | None = timedelta(days=30)
    keys: timedelta | None = timedelta(days=90)
    letters_a_day: int | None = 100
    """More dead letters than this within a day raise a ticket, once each time the number is exceeded."""
    messages: timedelta | None = timedelta(days=7)
    """Messages of the outbox, after they were published or skipped."""

    if TYPE_CHECKING:  # durations are given in any form, and parsed to timedelta

        def __init__(  # noqa: PLR0917 - the fields, in their order
            self,
            letters: Duration | None = ...,
            most_letters: int | None = ...,
            finished: Duration | None = ...,
            keys: Duration | None = ...,
            letters_a_day: int | None = ...,
            messages: Duration | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        parse_durations(self, "letters", "finished", "keys", "messages")
        for name in ("letters", "finished", "keys", "messages"):
            if getattr(self, name) == timedelta(0):
                raise ValueError(f"retention of {name} must be positive; None keeps them for ever")
        if self.most_letters is not None and self.most_letters < 1:
            raise ValueError("most_letters must be at least 1; None sets no limit")
        if self.letters_a_day is not None and self.letters_a_day < 0:
            raise ValueError("letters_a_day must be 0 or more; None raises no ticket")
