"""How a worker behaves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from holdfast.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Slots, queues and the lengths of time a worker lives by."""

    slots: int = 100
    queues: Sequence[str] | Mapping[str, int] = ("default",)
    """In the order in which they are served; or with weights, by which chance decides who is served first."""
    lease: timedelta = timedelta(seconds=90)
    grace: timedelta = timedelta(seconds=30)
    poll: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        """Refuse a worker that would run nothing, or never rest."""
        if not isinstance(self.slots, int) or self.slots < 1:
            raise ConfigError(f"slots={self.slots!r} runs nothing; give a worker at least one")
        if not self.queues:
            raise ConfigError("a worker without queues runs nothing; name at least one")
        if not all(self.queues):
            raise ConfigError("a queue without a name has no jobs; name it, or leave it out")
        if isinstance(self.queues, Mapping) and not all(weight > 0 for weight in self.queues.values()):
            raise ConfigError(f"queues={dict(self.queues)!r} has a weight below one; leave such a queue out")
        for name, length in (("lease", self.lease), ("poll", self.poll)):
            if length <= timedelta(0):
                raise ConfigError(f"{name} must be longer than nothing, for example 1s")
