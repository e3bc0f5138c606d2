"""A message as a broker carries it."""

from holdfast.core.messages.broker_message import IncomingMessage, Route


def test_routes_that_differ_in_one_part_are_displayed_differently() -> None:
    routes = [Route("a", "b", "c"), Route("x", "b", "c"), Route("a", "x", "c"), Route("a", "b", "x")]

    assert [str(route) for route in routes] == ["a/b/c", "x/b/c", "a/x/c", "a/b/x"]


def test_a_message_without_headers_shares_none_with_another() -> None:
    one, other = IncomingMessage("orders", b"{}"), IncomingMessage("orders", b"{}")

    assert one == other
    assert one.headers is not other.headers
