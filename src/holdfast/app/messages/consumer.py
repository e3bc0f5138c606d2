"""Declarations of consumers, and what is fed to them directly."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from inspect import Parameter
from typing import Any, Generic, TypeVar, overload

from pydantic import BaseModel

from holdfast.app.job_function import JobCall
from holdfast.core.errors import ConfigError
from holdfast.core.names import ensure_name
from holdfast.core.strict_json import encode
from holdfast.engine.messages.message_type import MessageType
from holdfast.engine.messages.receiving.delivery import Delivery
from holdfast.engine.registry import ConsumerSpec, Registry

MOST_PREFETCH = 65_535
"""The most that AMQP can express."""

M = TypeVar("M", bound=BaseModel)
MadeT = TypeVar("MadeT", bound=JobCall[Any] | Awaitable[JobCall[Any] | None] | None)


class ConsumerDecorator(Generic[M]):
    """Declares a consumer, and returns its function unchanged."""

    def __init__(self, declare: Callable[[Callable[..., Any]], None]) -> None:
        self._declare = declare

    @overload
    def __call__(self, function: Callable[[M], MadeT]) -> Callable[[M], MadeT]: ...
    @overload
    def __call__(self, function: Callable[[M, Delivery], MadeT]) -> Callable[[M, Delivery], MadeT]: ...
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self._declare(function)
        return function


def consumer_spec(
    function: Callable[..., Any] | None,
    *,
    message_type: MessageType | None,
    name: str,
    queue: str,
    broker: str,
    prefetch: int,
) -> ConsumerSpec:
    """Build the specification of a consumer. Raises `ConfigError`, which says what is expected."""
    known = ensure_name(name, "consumer")
    if type(prefetch) is not int or not 1 <= prefetch <= MOST_PREFETCH:
        raise ConfigError(
            f"prefetch={prefetch!r} of consumer {known!r} must be a whole number from 1 to {MOST_PREFETCH}"
        )
    return ConsumerSpec(
        name=known,
        queue=ensure_name(queue, "queue"),
        broker=broker,
        message_type=message_type,
        function=function,
        takes_delivery=function is not None and _takes_delivery(function, known),
        is_async=inspect.iscoroutinefunction(function),
        prefetch=prefetch,
    )


def _takes_delivery(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function takes a delivery with the message."""
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values() if callable(function) else ()
    count = sum(each.kind in positional and each.default is Parameter.empty for each in parameters)
    if count not in (1, 2):
        raise ConfigError(
            f"consumer {name!r} decorates {function!r}; give it a function of (message) or of (message, delivery)"
        )
    return count == 2


def fed_consumer(registry: Registry, model: type[BaseModel], queue: str | None) -> ConsumerSpec:
    """Return the consumer of *model*, and of *queue* if that is given. Raises `ConfigError` unless it is one."""
    message_type = registry.message_type_of(model)
    found = [
        spec
        for spec in registry.consumers.values()
        if spec.message_type is message_type and queue in (None, spec.queue)
    ]
    if len(found) != 1:
        where = "" if queue is None else f" on the queue {queue!r}"
        known = ", ".join(spec.queue for spec in found) or "none"
        raise ConfigError(
            f"feed() needs one consumer of {model.__name__}{where}; the queues of those declared: {known}"
        )
    return found[0]


def body_of(message_type: MessageType, message: BaseModel | Mapping[str, Any] | str | bytes) -> bytes:
    """Return the body of a message, as it is given or written."""
    match message:
        case BaseModel():
            return message_type.dump(message).encode()
        case str():
            return message.encode()
        case bytes():
            return message
        case _:
            return encode(dict(message), what="the message").encode()
