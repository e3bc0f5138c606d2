"""What a declaration of a broker or a message type refuses."""

from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Holdfast
from holdfast.core.messages.broker_message import Route
from holdfast.errors import ConfigError


class Request(BaseModel):
    """A message with one field."""

    requestId: str  # noqa: N815 - the name is that of the JSON


@pytest.fixture
def hold() -> Holdfast:
    return Holdfast("sqlite:///never-opened.db")


def test_a_message_goes_to_the_only_broker_under_its_own_name(hold: Holdfast) -> None:
    hold.broker("rabbitmq", "amqp://localhost")

    hold.message("grading.request", exchange="vstep.exchange", identity="requestId")(Request)

    declared = hold.runtime.registry.message_types["grading.request"]
    assert declared.route == Route("rabbitmq", "vstep.exchange", "grading.request")
    assert (declared.identity, declared.aggregate_type, declared.version) == (
        ("requestId",),
        "grading.request",
        1,
    )
    assert hold.runtime.registry.message_type_of(Request) is declared


def test_with_two_brokers_a_message_names_its_own(hold: Holdfast) -> None:
    hold.broker("rabbitmq", "amqps://localhost")
    redis = hold.broker("redis", "redis://localhost")

    hold.message("request", broker=redis, routing_key="stream")(Request)

    assert hold.runtime.registry.message_types["request"].route == Route("redis", "", "stream")


@pytest.mark.parametrize("to", ["http://localhost", "amqp:localhost", 7, None])
def test_an_address_of_another_kind_is_refused_without_quoting_it(hold: Holdfast, to: Any) -> None:
    with pytest.raises(ConfigError, match="must begin with amqp://"):
        hold.broker("rabbitmq", to)


def test_a_broker_is_declared_once(hold: Holdfast) -> None:
    hold.broker("rabbitmq", "amqp://localhost")

    with pytest.raises(ConfigError, match="declared twice"):
        hold.broker("rabbitmq", print)


def test_a_message_needs_a_broker_that_is_declared_before(hold: Holdfast) -> None:
    with pytest.raises(ConfigError, match="declared: none"):
        hold.message("request")(Request)


def test_a_broker_of_another_holdfast_is_refused(hold: Holdfast) -> None:
    other = Holdfast("sqlite:///never-opened.db").broker("rabbitmq", "amqp://localhost")

    with pytest.raises(ConfigError, match="of the same Holdfast"):
        hold.message("request", broker=other)(Request)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"name": "x" * 65}, "too long"),
        ({"name": ""}, "cannot name"),
        ({"aggregate_type": "x" * 65}, "too long"),
        ({"version": 0}, "version=0"),
        ({"version": True}, "version=True"),
        ({"identity": "request_id"}, "has no field 'request_id'; its fields are requestId"),
        ({"aggregate": "nothing.there"}, "has no field"),
    ],
)
def test_a_mistake_in_a_declaration_raises_when_the_application_starts(
    hold: Holdfast, options: dict[str, Any], match: str
) -> None:
    hold.broker("rabbitmq", "amqp://localhost")

    with pytest.raises(ConfigError, match=match):
        hold.message(**{"name": "request", **options})(Request)


def test_only_models_are_messages_and_each_name_belongs_to_one(hold: Holdfast) -> None:
    hold.broker("rabbitmq", "amqp://localhost")
    hold.message("request")(Request)

    with pytest.raises(ConfigError, match="pydantic model"):
        hold.message("other")(dict)  # type: ignore[type-var]  # the mistake that is tested
    with pytest.raises(ConfigError, match="declared twice"):
        hold.message("request")(Request)
    with pytest.raises(ConfigError, match="not declared as a message"):
        hold.runtime.registry.message_type_of(BaseModel)
