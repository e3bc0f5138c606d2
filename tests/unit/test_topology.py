"""A topology is read from a document, and a mistake in it is named."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import ConfigError
from holdfast.core.messages.topology import (
    Binding,
    Exchange,
    Presence,
    Queue,
    Topology,
    TopologyPart,
    compare_bindings,
)

GRADING: dict[str, Any] = {
    "exchange": {"name": "vstep.exchange", "type": "direct", "durable": True},
    "queues": [
        {
            "name": "grading.request",
            "durable": True,
            "arguments": {
                "x-queue-type": "classic",
                "x-dead-letter-exchange": "vstep.exchange",
                "x-dead-letter-routing-key": "grading.dlq",
            },
        },
        {"name": "grading.callback", "durable": True, "arguments": {"x-queue-type": "classic"}},
        {"name": "grading.dlq", "durable": True, "arguments": {}},
    ],
}


def test_without_bindings_each_queue_is_bound_under_its_own_name_to_the_exchange() -> None:
    topology = Topology.of(GRADING)

    assert topology.exchanges == (Exchange("vstep.exchange"),)
    assert topology.queues[0] == Queue("grading.request", arguments=GRADING["queues"][0]["arguments"])
    assert topology.bindings == tuple(
        Binding("vstep.exchange", name, name)
        for name in ("grading.request", "grading.callback", "grading.dlq")
    )


def test_a_second_exchange_for_dead_letters_needs_explicit_bindings() -> None:
    with_dead_letters = GRADING | {"exchanges": [{"name": "vstep.dlx"}]}
    with pytest.raises(ConfigError, match="must list its bindings"):
        Topology.of(with_dead_letters)

    topology = Topology.of(
        with_dead_letters | {"bindings": [{"exchange": "vstep.dlx", "queue": "grading.dlq"}]}
    )

    assert [exchange.name for exchange in topology.exchanges] == ["vstep.exchange", "vstep.dlx"]
    assert topology.bindings == (Binding("vstep.dlx", "grading.dlq", "grading.dlq"),)


def test_queues_without_an_exchange_have_no_bindings() -> None:
    assert Topology.of({"queues": [{"name": "alone"}]}) == Topology(queues=(Queue("alone"),))


def test_a_printed_topology_is_read_again() -> None:
    topology = Topology.of(GRADING)

    assert Topology.of(topology.as_document()) == topology


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "the topology must be an object"),
        ({"queue": []}, "unknown field 'queue'"),
        ({"queues": {}}, "queues of the topology must be a list"),
        ({"queues": ["q"]}, "a queue must be an object"),
        ({"queues": [{"name": ""}]}, "name of a queue must be text"),
        ({"queues": [{"name": "ü" * 128}]}, "1 to 255 bytes"),
        ({"queues": [{"name": "q", "durable": "yes"}]}, "durable of queue 'q' must be true or false"),
        ({"queues": [{"name": "q", "arguments": []}]}, "arguments of queue 'q' must be an object"),
        ({"queues": [{"name": "q"}, {"name": "q"}]}, "two queues named 'q'"),
        ({"exchange": {"name": "e", "type": 1}}, "type of exchange 'e' must be text"),
        ({"bindings": [{"exchange": "e", "queue": "q"}]}, "an exchange that the topology does not have"),
        ({"exchange": {"name": "e"}, "bindings": [{"exchange": "e", "queue": "q"}]}, "names a queue that"),
    ],
)
def test_a_mistake_is_named_with_its_place(document: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        Topology.of(document)


def test_a_missing_binding_is_a_difference_and_a_further_one_is_none() -> None:
    there, missing, further = (Binding("e", "q", key) for key in ("there", "missing", "further"))

    assert compare_bindings([there, missing], {there, further}) == [
        TopologyPart("binding", "e -> q (there)", Presence.PRESENT),
        TopologyPart("binding", "e -> q (missing)", Presence.MISSING),
    ]
