"""Whether the store answers: one owner of that question per worker, so that an outage is two log lines."""

from holdfast.core.errors import StoreUnavailable
from holdfast.ports import Clock, Logger


class StoreAvailability:
    """Logs when the store stops answering and when it answers again.

    Every service of a worker reports here under its own name. An outage begins with the first failed call and ends
    when each service that failed has succeeded: during a failover reads succeed while writes are refused, and the
    outage is not over.
    """

    def __init__(self, worker: str, clock: Clock, logger: Logger) -> None:
        self._worker = worker
        self._clock = clock
        self._logger = logger
        self._failing: set[str] = set()
        self._kinds: set[type[StoreUnavailable]] = set()
        self._since = 0.0

    def failed(self, service: str, error: StoreUnavailable) -> None:
        """Note that the store did not answer *service*."""
        if not self._failing:
            self._since = self._clock.monotonic()
            self._kinds.clear()
        if type(error) not in self._kinds:  # that a store which was gone is now read-only is worth a line
            self._kinds.add(type(error))
            self._logger.warning(
                "store unavailable", worker=self._worker, service=service, message=str(error)
            )
        self._failing.add(service)

    def answered(self, service: str) -> None:
        """Note that the store answered *service*."""
        if service not in self._failing:
            return
        self._failing.remove(service)
        if not self._failing:
            lasted = self._clock.monotonic() - self._since
            self._logger.info("store available", worker=self._worker, duration_ms=round(lasted * 1000))
