"""The orders of the shop: always the same ones for the same number of them."""

from dataclasses import dataclass

UNSERVED = "Port Ellen"
"""The place that the provider cannot ship to, until it is repaired."""

PLACES = ("Bergen", "Cork", "Gdynia", "Porto")

SLIP = 11
MISSPELT, MEANT = "Prto", "Porto"
"""The number of the order with a misspelt destination, its destination, and the place that was meant."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a customer. Without a destination there is nothing to ship: it is a download."""

    number: int
    destination: str | None

    @property
    def key(self) -> str:
        """The idempotency key of the order."""
        return f"order-{self.number}"

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the order, each of which has one effect at the provider."""
        return ("charge", "notify") if self.destination is None else ("charge", "ship", "notify")


def orders(count: int) -> list[Order]:
    """Return *count* orders: a third are downloads, one in seventy-five is for the unserved place, one is misspelt.

    >>> [order.destination for order in orders(11)][5:]
    [None, 'Port Ellen', 'Bergen', None, 'Gdynia', 'Prto']
    """
    return [Order(number, _destination(number)) for number in range(1, count + 1)]


def _destination(number: int) -> str | None:
    if number % 3 == 0:
        return None
    if number == SLIP:
        return MISSPELT
    return UNSERVED if number % 75 == 7 else PLACES[number % len(PLACES)]
