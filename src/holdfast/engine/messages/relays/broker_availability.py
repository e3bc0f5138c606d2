"""Which brokers take messages: an outage pauses a broker, costs no message anything, and is two log lines."""

from dataclasses import dataclass

from holdfast.ports import Clock, Logger, Random

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 10.0


@dataclass(slots=True)
class Outage:
    """A broker that is unavailable, since when, and when it is tried again."""

    since: float
    until: float
    tries: int = 1
    trial: bool = False
    """Whether a message is being published to find out if the broker is back."""


class BrokerAvailability:
    """Admits messages to brokers. During an outage one message at a time is tried, after growing pauses."""

    def __init__(self, relay: str, *, clock: Clock, random: Random, logger: Logger) -> None:
        self._relay = relay
        self._clock = clock
        self._random = random
        self._logger = logger
        self._outages: dict[str, Outage] = {}

    def admits(self, broker: str) -> bool:
        """Whether a message may be published now; during an outage, a yes is for one message."""
        if not self.takes_messages(broker):
            return False
        outage = self._outages.get(broker)
        if outage is not None:
            outage.trial = True
        return True

    def takes_messages(self, broker: str) -> bool:
        """Whether `admits` would say yes now."""
        outage = self._outages.get(broker)
        return outage is None or not (outage.trial or self._clock.monotonic() < outage.until)

    def failed(self, broker: str, message: str) -> None:
        """Note that the broker was unavailable. Messages that fail together count as one try."""
        now, outage = self._clock.monotonic(), self._outages.get(broker)
        if outage is None:
            self._outages[broker] = Outage(now, now + self._pause(0))
            self._logger.warning("broker unavailable", broker=broker, relay=self._relay, message=message)
        elif outage.trial:
            outage.trial = False
            outage.until = now + self._pause(outage.tries)
            outage.tries += 1

    def answered(self, broker: str, *, asked_at: float) -> None:
        """Note that the broker answered a message that was sent at *asked_at*, by the monotonic clock."""
        outage = self._outages.get(broker)
        if outage is None or asked_at <= outage.since:
            return  # an answer from before the outage says nothing about now
        del self._outages[broker]
        lasted = round((self._clock.monotonic() - outage.since) * 1000)
        self._logger.info("broker available", broker=broker, relay=self._relay, duration_ms=lasted)

    def abandoned(self, broker: str) -> None:
        """Note that a message was given up without an answer."""
        outage = self._outages.get(broker)
        if outage is not None:
            outage.trial = False

    @property
    def outage(self) -> bool:
        """Whether a broker is unavailable."""
        return bool(self._outages)

    def seconds_to_trial(self, brokers: "frozenset[str]") -> float | None:
        """Return how long until one of *brokers* may be tried; `None` if one of them is available."""
        if not brokers or not brokers <= self._outages.keys():
            return None
        now = self._clock.monotonic()
        return max(min(self._outages[broker].until for broker in brokers) - now, 0.0)

    def _pause(self, tries: int) -> float:
        longest: float = min(FIRST_PAUSE * 2.0 ** min(tries, 10), LONGEST_PAUSE)
        return longest * (0.5 + self._random.random() / 2)
