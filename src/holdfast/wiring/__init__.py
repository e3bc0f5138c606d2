"""The one place that knows concrete parts, and puts them together."""

import re
from collections.abc import Callable, Sequence
from typing import cast
from urllib.parse import unquote

from holdfast.config import Settings
from holdfast.core.classify import Classifier
from holdfast.core.errors import ConfigError
from holdfast.core.payload import fingerprint
from holdfast.core.redaction import Redact, redact
from holdfast.core.rules import Rule
from holdfast.engine.parts import Parts
from holdfast.engine.registry import Registry
from holdfast.ports import Clock, Codec, Journal, Metrics, Store
from holdfast.stores.coded import CodedStore
from holdfast.telemetry.figures import Figures
from holdfast.telemetry.logs import StructuredJournal
from holdfast.telemetry.tracing import OpenTelemetry
from holdfast.wiring.system import SystemClock, SystemDice, SystemIds
from holdfast.wiring.threads import Threads

POSTGRES = ("postgresql", "postgres")


def assemble(
    settings: Settings,
    *,
    registry: Registry,
    rules: Sequence[Rule] = (),
    redactor: Redact = redact,
    journal: Journal | None = None,
    metrics: Metrics | None = None,
    codec: Codec | None = None,
    store_of: Callable[..., Store] | None = None,
) -> Parts:
    """Put the real parts together, as *settings* want them; *store_of* stands in for `open_store`."""
    clock = SystemClock()
    store = (store_of or open_store)(settings, clock=clock)
    return Parts(
        store=store if codec is None else cast("Store", CodedStore(store, codec)),
        registry=registry,
        classifier=Classifier(*rules, redact=redactor),
        clock=clock,
        dice=SystemDice(),
        ids=SystemIds(),
        executor=Threads("holdfast-handler"),
        journal=journal or StructuredJournal(level=settings.log_level, as_json=settings.log_format == "json"),
        metrics=metrics or Figures(),
        tracer=OpenTelemetry(),
        fingerprint=fingerprint if codec is None else _keyed(codec),
    )


def _keyed(codec: Codec) -> Callable[[str], str]:
    return lambda text: codec.fingerprint(fingerprint(text))


def open_store(settings: Settings, *, clock: Clock) -> Store:
    """Make the store that *settings* name, without connecting to it yet."""
    url = settings.database_url
    if _scheme(url) == "sqlite":
        return _sqlite(url, clock)
    if _scheme(url) in POSTGRES:
        return _postgres(settings)
    raise ConfigError(
        f"database_url={_shown(url)!r} is not usable: it begins with sqlite:/// or postgresql://"
    )


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def sqlite_path(url: str) -> str | None:
    """Give the file that *url* names; `None` if it names another kind of store."""
    return unquote(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def _shown(url: str) -> str:
    """Give an address as it may be told: without user, password and parameters."""
    return re.sub("//.*@", "//…@", url).partition("?")[0]


def _sqlite(url: str, clock: Clock) -> Store:
    from holdfast.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - only what is used is loaded

    path = sqlite_path(url)
    if path in (None, "", ":memory:"):
        raise ConfigError(
            f"database_url={_shown(url)!r} is not usable: write sqlite:///file.db, or sqlite:////full/path.db"
        )
    return SqliteStore(
        path,
        clock=clock,
        writing=Threads("holdfast-sqlite-writer", limit=1),
        reading=Threads("holdfast-sqlite-reader", limit=1),
    )


def _postgres(settings: Settings) -> Store:
    direct = settings.database_direct_url
    if direct is not None and _scheme(direct) not in POSTGRES:
        raise ConfigError(
            f"database_direct_url={_shown(direct)!r} is not usable: it begins with postgresql://"
        )
    try:
        from holdfast.stores.postgres.store import PostgresStore  # noqa: PLC0415 - asyncpg is an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            "PostgreSQL needs the driver asyncpg; install it with: pip install 'holdfast[postgres]'"
        ) from error
    return PostgresStore(settings.database_url, pooled=settings.database_pooled, direct_url=direct)
