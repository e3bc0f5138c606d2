"""Which network addresses an outgoing call may reach: public ones, and those that an operator allows by name.

Without this rule an address that a user of the application types in reaches what only this machine can reach: a
database on loopback, a router, the metadata service of a cloud.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = ip_network("64:ff9b::/96")
_NOT_PUBLIC = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10")))
"""Networks for protocols, relays and sites that the standard library of some versions takes for public."""


def is_public(address: Address) -> bool:
    """Whether *address* belongs to the public internet, also by what is embedded in it.

    >>> [is_public(ip_address(text)) for text in ("93.184.216.34", "10.0.0.1", "::ffff:127.0.0.1")]
    [True, False, False]
    """
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that a translated IPv6 address leads to."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    teredo = None if address.teredo is None else address.teredo[1]
    return address.ipv4_mapped or address.sixtofour or teredo


@dataclass(frozen=True, slots=True)
class AllowList:
    """Hosts and networks that may be reached although they are not public.

    >>> allowed = AllowList.of(["10.0.0.0/8", "alerts.internal"])
    >>> allowed.permits("anything.example", ip_address("10.1.2.3"))
    True
    >>> allowed.permits("anything.example", ip_address("192.168.1.1"))
    False
    """

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> "AllowList":
        """Read host names, addresses and networks. Raises `ValueError` for a network whose host bits are set."""
        hosts, networks = set(), []
        for entry in (entry.strip() for entry in entries):
            if "/" in entry or _is_address(entry):
                networks.append(ip_network(entry))
            elif entry:
                hosts.add(entry.lower())
        return cls(frozenset(hosts), tuple(networks))

    def permits(self, host: str, address: Address) -> bool:
        """Whether *host*, which resolves to *address*, may be reached there."""
        return (
            is_public(address)
            or host.lower() in self.hosts
            or any(address in network for network in self.networks)
        )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
