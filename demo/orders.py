"""The orders that the shop takes in: always the same ones for the same number of them."""

from dataclasses import dataclass

UNSERVED = "Port Ellen"
"""The place that the provider cannot ship to, until somebody repairs it."""

PLACES = ("Bergen", "Cork", "Gdynia", "Porto")


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer wants. Without a destination there is nothing to ship: it is a download."""

    number: int
    destination: str | None

    @property
    def key(self) -> str:
        """What makes a second submission of the order the same job."""
        return f"order-{self.number}"

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that the order goes through, each of which has one effect outside."""
        return ("charge", "notify") if self.destination is None else ("charge", "ship", "notify")


def orders(count: int) -> list[Order]:
    """Make *count* orders: a third of them downloads, and one in seventy-five for the unserved place.

    >>> [order.destination for order in orders(8)]
    ['Cork', 'Gdynia', None, 'Bergen', 'Cork', None, 'Port Ellen', 'Bergen']
    """
    return [Order(number, _destination(number)) for number in range(1, count + 1)]


def _destination(number: int) -> str | None:
    if number % 3 == 0:
        return None
    return UNSERVED if number % 75 == 7 else PLACES[number % len(PLACES)]
