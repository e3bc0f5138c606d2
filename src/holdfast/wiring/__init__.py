"""The one place that knows concrete parts, and puts them together."""

import re
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import NoReturn, cast
from urllib.parse import unquote

from holdfast.archives import FernetEncrypter, open_archive
from holdfast.channels import TicketWebhook
from holdfast.config import Settings
from holdfast.core.dead_letters.retention import Retention
from holdfast.core.errors import ConfigError
from holdfast.core.failures.classifier import Classifier
from holdfast.core.failures.rules import Rule
from holdfast.core.redaction import Redactor
from holdfast.core.strict_json import fingerprint
from holdfast.engine.options import Hook, LetterOptions
from holdfast.engine.registry import Registry
from holdfast.engine.runtime import Runtime
from holdfast.ports import Clock, Codec, Executor, Logger, Metrics, Store
from holdfast.ports.archive import Encrypter
from holdfast.stores.encoded_store import EncodedStore
from holdfast.telemetry.logs import StructuredLogger, bind_job
from holdfast.telemetry.metrics import MetricRegistry
from holdfast.telemetry.tracing import OpenTelemetry
from holdfast.wiring.system import SystemClock, SystemDice, SystemIds
from holdfast.wiring.threads import Threads, ThreadWatchdog

POSTGRES = ("postgresql", "postgres")


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
    """Put the real parts together, as *settings* say; *store_of* stands in for `open_store`."""
    # One's own: it takes the key of the store, and an application may give the same one to two.
    clock, redactor = SystemClock(), Redactor() if redactor is None else copy(redactor)
    executor = Threads("holdfast-handler")
    store = (store_of or open_store)(settings, clock=clock)
    return Runtime(
        store=store if codec is None else cast("Store", EncodedStore(store, codec)),
        registry=registry,
        classifier=Classifier(*rules, redact=redactor),
        redactor=redactor,
        letters=_letters(
            settings, retention, _with_webhook(settings, [] if hooks is None else hooks, clock), executor
        ),
        clock=clock,
        dice=SystemDice(),
        ids=SystemIds(),
        executor=executor,
        logger=logger or StructuredLogger(level=settings.log_level, as_json=settings.log_format == "json"),
        metrics=metrics or MetricRegistry(),
        tracer=OpenTelemetry(),
        watchdog=ThreadWatchdog("holdfast-lease-guard"),
        fingerprint=fingerprint if codec is None else _keyed(codec),
        bind_job=bind_job,
    )


def _letters(
    settings: Settings, retention: Retention | None, hooks: list[Hook], executor: Executor
) -> LetterOptions:
    return LetterOptions(
        code_version=settings.code_version,
        retention=settings.retention if retention is None else retention,
        tickets_per=settings.tickets_per,
        hooks=hooks,
        archive=None
        if settings.archive_url is None
        else open_archive(settings.archive_url, executor=executor),
        encrypter_of=partial(_encrypter, settings.archive_key),
    )


def _with_webhook(settings: Settings, hooks: list[Hook], clock: Clock) -> list[Hook]:
    """Add the webhook that *settings* name to *hooks*, once: the list is shared with code that adds to it later."""
    if settings.ticket_webhook_url is not None:
        webhook = TicketWebhook(
            settings.ticket_webhook_url,
            secrets=_listed(settings.ticket_webhook_secret),
            allow=_listed(settings.ticket_webhook_allow),
            clock=clock,
        )
        if webhook not in hooks:
            hooks.append(webhook)
    return hooks


def _encrypter(given: str | None, stores_own: bytes) -> Encrypter:
    """Encrypt with the first of the keys given; what another of them, or the store's own, encrypted is decrypted as well."""
    return FernetEncrypter(*(key.encode() for key in _listed(given)), stores_own)


def _listed(given: str | None) -> tuple[str, ...]:
    """Read a setting that has several values, separated by commas."""
    return () if given is None else tuple(value.strip() for value in given.split(","))


def _keyed(codec: Codec) -> Callable[[str], str]:
    return lambda text: codec.fingerprint(fingerprint(text))


def open_store(settings: Settings, *, clock: Clock) -> Store:
    """Make the store that *settings* name, without connecting to it yet."""
    try:
        return _store(settings, clock)
    except ConfigError as error:
        if settings.is_foreign("database_url"):
            return cast("Store", _UnusableStore(str(error)))
        raise


class _UnusableStore:
    """Stands for a store whose address may be another program's: it raises when it is used, and not at an import."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def close(self) -> None:
        """Let go of nothing: it was never opened."""

    def __getattr__(self, _: str) -> NoReturn:
        raise ConfigError(self._why)


def _store(settings: Settings, clock: Clock) -> Store:
    scheme = _scheme(settings.database_url)
    if scheme == "sqlite":
        _refuse_schema(settings)
        return _sqlite(settings, clock)
    if scheme in POSTGRES:
        return _postgres(settings)
    raise _unusable(settings, "database_url", "it begins with sqlite:/// or postgresql://")


def _unusable(settings: Settings, name: str, why: str) -> ConfigError:
    url = getattr(settings, name)
    hint = "; for one of Holdfast's own, set HOLDFAST_DATABASE_URL" if settings.is_foreign(name) else ""
    return ConfigError(f"{settings.shown(name)}={_shown(url)!r} is not usable: {why}{hint}")


def _refuse_schema(settings: Settings) -> None:
    """Refuse a schema on SQLite: the file would hold the jobs of all applications, and look as if it did not."""
    default = Settings.model_fields["database_schema"].default
    if settings.database_schema != default:
        raise ConfigError(
            f"database_schema={settings.database_schema!r} is for PostgreSQL; with SQLite give each application a "
            "file of its own"
        )


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def sqlite_path(url: str) -> str | None:
    """Give the file that *url* names; `None` if it names another kind of store."""
    return unquote(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def _shown(url: str) -> str:
    """Give an address as it may be shown: without user, password and parameters."""
    return re.sub("//.*@", "//…@", url).partition("?")[0]


def _sqlite(settings: Settings, clock: Clock) -> Store:
    from holdfast.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - only what is used is loaded

    path = sqlite_path(settings.database_url)
    if path in (None, "", ":memory:"):
        raise _unusable(settings, "database_url", "write sqlite:///file.db, or sqlite:////full/path.db")
    return SqliteStore(
        path,
        clock=clock,
        writing=Threads("holdfast-sqlite-writer", limit=1),
        reading=Threads("holdfast-sqlite-reader", limit=1),
    )


def _postgres(settings: Settings) -> Store:
    direct = settings.database_direct_url
    if direct is not None and _scheme(direct) not in POSTGRES:
        raise _unusable(settings, "database_direct_url", "it begins with postgresql://")
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
