"""The only module that knows the concrete classes behind the ports, and creates them."""

import linecache
import re
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import NoReturn, cast
from urllib.parse import unquote

from holdfast.config import Settings
from holdfast.core.dead_letters.retention import Retention
from holdfast.core.errors import ConfigError
from holdfast.core.failures.classifier import Classifier
from holdfast.core.failures.rules import Rule
from holdfast.core.redaction import Redactor
from holdfast.core.strict_json import fingerprint
from holdfast.engine.options import Hook, LetterOptions
from holdfast.engine.registry import BrokerSpec, Registry
from holdfast.engine.runtime import Runtime
from holdfast.ports import Broker, Clock, Codec, Executor, Logger, Metrics, SchemaState, Store
from holdfast.ports.archive import Archive, Encrypter
from holdfast.stores.encoded_store import EncodedStore
from holdfast.telemetry.logs import StructuredLogger, bind_job
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.telemetry.tracing import OpenTelemetry
from holdfast.wiring.system import SystemClock, SystemIds, SystemRandom
from holdfast.wiring.threads import Threads, ThreadWatchdog

POSTGRES = ("postgresql", "postgres")
RABBITMQ = ("amqp", "amqps")


def assemble(
    settings: Settings,
    *,
    registry: Registry,
    rules: Sequence[Rule] = (),
    redactor: Redactor | None = None,
    retention: Retention | None = None,
    hooks: list[Hook] | None = None,
    logger: Logger | None = None,
    metrics: Metrics | None = None,
    codec: Codec | None = None,
    store_of: Callable[..., Store] | None = None,
) -> Runtime:
    """Create the runtime that *settings* describe; *store_of* replaces `open_store`."""
    # A copy: it takes the key of its store, and an application may pass one redactor to two Holdfasts.
    clock, redactor = SystemClock(), Redactor() if redactor is None else copy(redactor)
    executor = Threads("holdfast-handler")
    store = (store_of or open_store)(settings, clock=clock)
    return Runtime(
        store=store if codec is None else cast("Store", EncodedStore(store, codec)),
        registry=registry,
        classifier=Classifier(*rules, redact=redactor, read_source=linecache.getlines),
        redactor=redactor,
        letters=_letter_options(
            settings, retention, _with_webhook(settings, [] if hooks is None else hooks, clock), executor
        ),
        clock=clock,
        random=SystemRandom(),
        ids=SystemIds(),
        executor=executor,
        logger=logger or StructuredLogger(level=settings.log_level, as_json=settings.log_format == "json"),
        metrics=metrics or MetricRegistry(),
        tracer=OpenTelemetry(),
        watchdog=ThreadWatchdog("holdfast-lease-guard"),
        fingerprint=fingerprint if codec is None else _keyed_fingerprint(codec),
        open_broker=partial(open_broker, executor=executor),
        bind_job=bind_job,
    )


def open_broker(spec: BrokerSpec, *, executor: Executor) -> Broker:
    """Make the client of a declared broker, without connecting. Raises `ConfigError` if a package is missing."""
    if spec.function is not None:
        from holdfast.brokers.function_broker import FunctionBroker  # noqa: PLC0415 - only what is used is loaded

        return FunctionBroker(spec.function, name=spec.name, executor=executor)
    url = spec.url or ""
    try:
        if _scheme(url) in RABBITMQ:
            from holdfast.brokers.rabbitmq import RabbitBroker  # noqa: PLC0415 - aio-pika is an extra

            return RabbitBroker(url, name=spec.name)
        from holdfast.brokers.redis_streams import RedisBroker  # noqa: PLC0415 - redis is an extra

        return RedisBroker(url, name=spec.name)
    except ModuleNotFoundError as error:
        package, extra = ("aio-pika", "rabbitmq") if _scheme(url) in RABBITMQ else ("redis", "redis")
        raise ConfigError(
            f"broker {spec.name!r} needs the package {package}; install it with: pip install 'holdfast[{extra}]'"
        ) from error


def _letter_options(
    settings: Settings, retention: Retention | None, hooks: list[Hook], executor: Executor
) -> LetterOptions:
    return LetterOptions(
        code_version=settings.code_version,
        retention=settings.retention if retention is None else retention,
        tickets_per=settings.tickets_per,
        hooks=hooks,
        archive=None if settings.archive_url is None else _open_archive(settings.archive_url, executor),
        encrypter_of=partial(_encrypter, settings.archive_key),
    )


def _open_archive(url: str, executor: Executor) -> Archive:
    from holdfast.archives import open_archive  # noqa: PLC0415 - only what is used is loaded

    return open_archive(url, executor=executor)


def _with_webhook(settings: Settings, hooks: list[Hook], clock: Clock) -> list[Hook]:
    """Add the webhook of *settings* to *hooks*, in place and once: `on_ticket` appends to the same list later."""
    if settings.ticket_webhook_url is not None:
        from holdfast.channels import TicketWebhook  # noqa: PLC0415 - only what is used is loaded

        webhook = TicketWebhook(
            settings.ticket_webhook_url,
            secrets=_split_commas(settings.ticket_webhook_secret),
            allow=_split_commas(settings.ticket_webhook_allow),
            clock=clock,
        )
        if webhook not in hooks:
            hooks.append(webhook)
    return hooks


def _encrypter(given: str | None, stores_own: bytes) -> Encrypter:
    """Encrypt with the first of the given keys; decrypt with any of them, and with the store's own."""
    from holdfast.archives import FernetEncrypter  # noqa: PLC0415 - only what is used is loaded

    return FernetEncrypter(*(key.encode() for key in _split_commas(given)), stores_own)


def _split_commas(given: str | None) -> tuple[str, ...]:
    """Return the values of a setting that are separated by commas."""
    return () if given is None else tuple(value.strip() for value in given.split(","))


def _keyed_fingerprint(codec: Codec) -> Callable[[str], str]:
    return lambda text: codec.fingerprint(fingerprint(text))


def open_store(settings: Settings, *, clock: Clock) -> Store:
    """Create the store that *settings* describe, without connecting to it."""
    try:
        return _create_store(settings, clock)
    except ConfigError as error:
        if settings.has_generic_source("database_url"):
            return cast("Store", _UnusableStore(str(error)))
        raise


class _UnusableStore:
    """A store whose address may belong to another program: it raises when it is used, not when it is created."""

    def __init__(self, message: str) -> None:
        self._message = message

    async def close(self) -> None:
        """Do nothing: it was never opened."""

    def __getattr__(self, _: str) -> NoReturn:
        raise ConfigError(self._message)


def _create_store(settings: Settings, clock: Clock) -> Store:
    scheme = _scheme(settings.database_url)
    if scheme == "sqlite":
        _ensure_default_schema(settings)
        return _sqlite_store(settings, clock)
    if scheme in POSTGRES:
        return _postgres_store(settings)
    raise _unusable_address(settings, "database_url", "it must begin with sqlite:/// or postgresql://")


def _unusable_address(settings: Settings, name: str, why: str) -> ConfigError:
    # Without user, password and parameters.
    url = re.sub("//.*@", "//…@", getattr(settings, name)).partition("?")[0]
    hint = (
        "; for one of Holdfast's own, set HOLDFAST_DATABASE_URL" if settings.has_generic_source(name) else ""
    )
    return ConfigError(f"{settings.source_of(name)}={url!r} is not usable: {why}{hint}")


def _ensure_default_schema(settings: Settings) -> None:
    """Refuse a schema on SQLite: a file has none, so applications would share their jobs without notice."""
    default = Settings.model_fields["database_schema"].default
    if settings.database_schema != default:
        raise ConfigError(
            f"database_schema={settings.database_schema!r} is for PostgreSQL; with SQLite give each application a "
            "file of its own"
        )


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def sqlite_path(url: str) -> str | None:
    """Return the file of a SQLite address; `None` for another kind of store."""
    return unquote(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def is_postgres(url: str) -> bool:
    """Return whether *url* names a PostgreSQL database."""
    return _scheme(url) in POSTGRES


def schema_of_absent_file() -> SchemaState:
    """Return the state of the schema in an SQLite file that does not exist."""
    from holdfast.stores.sqlite.schema import EXPECTED  # noqa: PLC0415 - a process on PostgreSQL does not load SQLite

    return SchemaState(found=0, expected=EXPECTED, min_compatible=0)


def _sqlite_store(settings: Settings, clock: Clock) -> Store:
    from holdfast.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - only what is used is loaded

    path = sqlite_path(settings.database_url)
    if path in (None, "", ":memory:"):
        raise _unusable_address(
            settings, "database_url", "write sqlite:///file.db, or sqlite:////full/path.db"
        )
    return SqliteStore(
        path,
        clock=clock,
        writing=Threads("holdfast-sqlite-writer", limit=1),
        reading=Threads("holdfast-sqlite-reader", limit=1),
    )


def _postgres_store(settings: Settings) -> Store:
    direct = settings.database_direct_url
    if direct is not None and _scheme(direct) not in POSTGRES:
        raise _unusable_address(settings, "database_direct_url", "it must begin with postgresql://")
    try:
        from holdfast.stores.postgres.store import PostgresStore  # noqa: PLC0415 - asyncpg is an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            "PostgreSQL needs the driver asyncpg; install it with: pip install 'holdfast[postgres]'"
        ) from error
    return PostgresStore(
        settings.database_url,
        pooled=settings.database_pooled,
        direct_url=direct,
        schema=settings.database_schema,
    )
