"""The orders that the shop takes in: always the same ones for the same number of them."""

from dataclasses import dataclass

UNSERVED = "Port Ellen"
"""The place that the provider cannot ship to, until somebody repairs it."""

PLACES = ("Bergen", "Cork", "Gdynia", "Porto")

SLIP = 11
MISSPELT, MEANT = "Prto", "Porto"
"""The order whose destination nobody knows, since somebody has misspelt it, and the place that was meant."""


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
    """Make *count* orders: a third are downloads, one in seventy-five is for the unserved place, one has a slip.

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
