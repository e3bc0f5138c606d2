"""`CeleryTransport`: how the jobs of a queue reach the Celery workers that run them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from celery import Celery

from holdfast.celery.dispatching.kombu_sender import KombuSender
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.core.names import is_name
from holdfast.ports.fleets import DispatchSender

AMQP = ("amqp", "pyamqp", "amqps")


@dataclass(frozen=True, slots=True, init=False)
class CeleryTransport:
    """Sends the jobs of a queue to Celery workers, which run them with `holdfast.celery.install(app, hold)`.

    *broker* is the team's Celery app, or the address of its broker. *queue* is the Celery queue that the workers take
    from (`celery worker -Q holdfast`), and *slots* how many tasks all of them run at a time: at most twice as many
    dispatches are outstanding. One that has not arrived after *resend* counts as lost, and is sent again. Raises
    `ConfigError` for a queue, a number or an address that cannot be used.

    >>> CeleryTransport("amqp://localhost", slots=8).queue
    'holdfast'
    """

    app: Any
    queue: str
    slots: int
    resend: timedelta
    knows_app: bool
    """Whether *app* is the team's own, with the settings of its workers."""

    def __init__(
        self,
        broker: "Celery | str",
        *,
        queue: str = "holdfast",
        slots: int = 16,
        resend: Duration = "30s",
    ) -> None:
        if not queue or not is_name(queue):
            raise ConfigError(f"queue={queue!r} is no name of a Celery queue; write for example 'holdfast'")
        if type(slots) is not int or slots < 1:
            raise ConfigError(
                f"slots={slots!r} runs nothing; give the number of tasks that all workers run at a time"
            )
        object.__setattr__(self, "app", _app_of(broker))
        object.__setattr__(self, "knows_app", isinstance(broker, Celery))
        object.__setattr__(self, "queue", queue)
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "resend", _positive(resend))

    @property
    def kind(self) -> str:
        return "celery"

    def open(self) -> DispatchSender:
        url = self._amqp_url()
        if url is None:
            return KombuSender(self.app, self.queue)
        try:
            from holdfast.celery.dispatching.rabbit_sender import RabbitSender  # noqa: PLC0415 - aiormq is an extra
        except ModuleNotFoundError as error:
            raise ConfigError(
                "CeleryTransport on RabbitMQ needs aiormq; install it with: pip install 'holdfast[celery]'"
            ) from error
        return RabbitSender(self.app, url, self.queue)

    def _amqp_url(self) -> str | None:
        """Return the address if it is one RabbitMQ with nothing that only kombu knows how to use, else `None`."""
        conf = self.app.conf
        url = conf.broker_write_url or conf.broker_url
        if not isinstance(url, str) or ";" in url or conf.broker_use_ssl or conf.broker_login_method:
            return None
        scheme, separator, rest = url.partition("://")
        if not separator or scheme not in AMQP:
            return None
        return f"{'amqps' if scheme == 'amqps' else 'amqp'}://{rest}"


def _app_of(broker: object) -> Celery:
    if isinstance(broker, Celery):
        return broker
    if isinstance(broker, str) and "://" in broker:
        return Celery("holdfast", broker=broker, set_as_current=False)
    raise ConfigError(
        "CeleryTransport needs a Celery app, or the address of its broker, such as amqp://user@host//"
    )


def _positive(resend: Duration) -> timedelta:
    try:
        length = duration(resend)
    except ValueError as error:
        raise ConfigError(f"resend: {error}") from None
    if not length:
        raise ConfigError("resend must be positive, for example 30s")
    return length
