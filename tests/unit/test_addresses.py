"""Which addresses an outgoing call may reach."""

from ipaddress import ip_address

import pytest

from holdfast.core.addresses import AllowList, is_public

INSIDE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "224.0.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "ff02::1",
    "::ffff:10.0.0.1", "fec0::1", "192.88.99.1", "192.0.0.8", "64:ff9b::a00:1", "2002:a00:1::", "2001:0:4136:e378:8000:63bf:f5ff:fffe",
]  # fmt: skip
OUTSIDE = ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"]


@pytest.mark.parametrize("text", INSIDE)
def test_an_address_that_leads_inside_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", OUTSIDE)
def test_an_address_of_the_internet_is_public(text: str) -> None:
    assert is_public(ip_address(text))


def test_an_allow_list_names_hosts_addresses_and_networks() -> None:
    allowed = AllowList.of([" Alerts.Internal ", "10.0.0.0/8", "::1", ""])

    assert allowed.hosts == {"alerts.internal"}
    assert allowed.permits("alerts.INTERNAL", ip_address("192.168.1.1"))
    assert allowed.permits("other.example", ip_address("10.9.9.9"))
    assert allowed.permits("other.example", ip_address("::1"))
    assert allowed.permits("other.example", ip_address("1.1.1.1"))
    assert not allowed.permits("other.example", ip_address("192.168.1.1"))


def test_a_network_with_host_bits_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="host bits"):
        AllowList.of(["10.0.0.1/8"])
