"""Jobs that this process cannot run, and another may: put aside for others, and told about once.

While a new version is rolled out, old and new workers share the queues, and each meets jobs whose name, or whose
key, only the other knows. They are given back with their attempt: ready, they would be claimed again at once. One
of an unknown name is held until a worker that knows the name, and serves the queue, releases it. One that cannot be decoded is parked for
a time: no worker can tell beforehand whether it could.
"""

from datetime import timedelta

from holdfast.core.jobs import Claim
from holdfast.core.providers import held_for_name
from holdfast.core.transitions import Requeue, hold, put_aside
from holdfast.ports import Clock, Journal

FIRST = timedelta(seconds=30)
LONGEST = timedelta(minutes=5)

UNKNOWN = (
    "jobs of this name wait for a worker that knows them; import the module that declares it, name it in aliases= "
    "if it was renamed, or start a worker with the code that submits it"
)
SEALED = (
    "jobs of this name wait for a worker that can decode them; give Holdfast(codec=…) the codec, and the key, that "
    "they were submitted with"
)


class Strangers:
    """Remembers which jobs were met that cannot run here, by name, and since when."""

    def __init__(self, worker: str, clock: Clock, journal: Journal) -> None:
        self._worker = worker
        self._clock = clock
        self._journal = journal
        self._unknown: set[str] = set()
        self._sealed: dict[str, float] = {}

    def unknown(self, claim: Claim) -> Requeue:
        """Put aside a job whose name nobody declared here."""
        if claim.name not in self._unknown:
            self._journal.warning("unknown job", **self._told(claim), message=UNKNOWN)
            self._unknown.add(claim.name)
        reason = f"{self._worker} knows no job named {claim.name!r}"
        return hold(claim, reason, held_by=held_for_name(claim.name, claim.queue))

    def sealed(self, claim: Claim) -> Requeue:
        """Put aside a job whose texts are encoded, and cannot be decoded here."""
        if claim.name not in self._sealed:
            self._journal.warning("sealed job", **self._told(claim), message=SEALED)
        # The longer the longer this has been so: each time costs two lines of history.
        now = self._clock.monotonic()
        so_far = timedelta(seconds=now - self._sealed.setdefault(claim.name, now))
        return put_aside(claim, f"{self._worker} cannot decode it", delay=min(max(so_far, FIRST), LONGEST))

    def _told(self, claim: Claim) -> dict[str, str]:
        return {"job_id": claim.id, "name": claim.name, "queue": claim.queue, "worker": self._worker}
