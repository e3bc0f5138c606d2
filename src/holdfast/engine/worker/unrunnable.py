"""Jobs that this process cannot run, and another may: put aside for other workers, and logged once per name.

During a rollout old and new workers share the queues, and each claims jobs whose name, or whose key, only the other
knows. They are put aside with their attempt given back: ready, they would be claimed again at once. A job of an unknown
name is held until a worker that knows the name, and serves the queue, releases it. One that cannot be decoded is parked
for a time: no worker can know before the claim whether it can decode it.
"""

from datetime import timedelta

from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import Requeue, hold, park_unrunnable
from holdfast.core.providers.holder import Holder
from holdfast.ports import Clock, Logger

FIRST = timedelta(seconds=30)
LONGEST = timedelta(minutes=5)

UNKNOWN = (
    "jobs of this name wait for a worker that knows them; import the module that declares it, name it in aliases= "
    "if it was renamed, or start a worker with the code that submits it"
)
UNDECODABLE = (
    "jobs of this name wait for a worker that can decode them; give Holdfast(codec=…) the codec, and the key, that "
    "they were submitted with"
)


class Unrunnable:
    """Decides on claimed jobs that cannot run here; remembers their names, and since when."""

    def __init__(self, worker: str, clock: Clock, logger: Logger) -> None:
        self._worker = worker
        self._clock = clock
        self._logger = logger
        self._unknown: set[str] = set()
        self._undecodable: dict[str, float] = {}

    def unknown(self, claim: Claim) -> Requeue:
        """Hold a job whose name is not declared here."""
        if claim.name not in self._unknown:
            self._logger.warning("job name unknown", **self._fields(claim), message=UNKNOWN)
            self._unknown.add(claim.name)
        reason = f"{self._worker} knows no job named {claim.name!r}"
        return hold(claim, reason, held_by=Holder(job=claim.name, queue=claim.queue))

    def undecodable(self, claim: Claim) -> Requeue:
        """Park a job whose texts are encoded, and cannot be decoded here."""
        if claim.name not in self._undecodable:
            self._logger.warning("job not decodable", **self._fields(claim), message=UNDECODABLE)
        # The delay grows with the time for which this has been so: each claim costs two history events.
        now = self._clock.monotonic()
        so_far = timedelta(seconds=now - self._undecodable.setdefault(claim.name, now))
        return park_unrunnable(
            claim, f"{self._worker} cannot decode it", delay=min(max(so_far, FIRST), LONGEST)
        )

    def _fields(self, claim: Claim) -> dict[str, str]:
        return {"job_id": claim.id, "name": claim.name, "queue": claim.queue, "worker": self._worker}
