"""The `Holdfast` of a Django project."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakSet

from django.db import close_old_connections
from django.db.backends.base.base import NO_DB_ALIAS

from holdfast import Holdfast
from holdfast.config import Settings, load_settings
from holdfast.contrib.django.database import database_url
from holdfast.contrib.django.following_store import FollowingStore
from holdfast.engine.runtime import Runtime
from holdfast.errors import ConfigError
from holdfast.ports import Clock, Executor, Store
from holdfast.wiring.assemble import assemble, open_store

T = TypeVar("T")


class DjangoHoldfast(Holdfast):
    """A `Holdfast` whose jobs are in the database *alias* of Django.

    With `within=connections[alias]` a job is submitted in Django's own transaction, and in tests jobs are in Django's
    test database. All other options are those of `Holdfast`. Before and after each plain job, the connections that
    Django opened in its thread are checked, as Django does for each request: one that is broken, or older than
    `CONN_MAX_AGE`, is closed.

    An unusable database raises an error at its first use, not here.
    """

    def __init__(self, alias: str = "default", **options: Any) -> None:
        self._alias = alias
        self._opened_at: str | None = None
        super().__init__(f"django:{alias}", **{"assemble": partial(_assemble, alias), **options})
        _INSTANCES.add(self)

    async def open(self) -> None:
        """Connect to the store: once, and again after Django has changed its database."""
        if self._opened_at != self._url:
            self._opened_at, self._opened = self._url, False
        await super().open()

    @property
    def _url(self) -> str:
        return database_url(self._alias)


_INSTANCES: WeakSet[DjangoHoldfast] = WeakSet()


def project_holdfast() -> Holdfast:
    """Return the `DjangoHoldfast` of the project, or a new one on Django's default database if it has none.

    Raises `ConfigError` if there are several: they may have different databases and codecs.
    """
    match list(_INSTANCES):
        case []:
            return DjangoHoldfast()
        case [only]:
            return only
        case several:
            raise ConfigError(
                f"this project has {len(several)} DjangoHoldfast objects; choose one with --app module:name"
            )


def schemas_of(alias: str) -> list[str]:
    """Return the schemas of the project's jobs in the database *alias*, by default that of the settings."""
    declared = {hold.settings.database_schema for hold in _INSTANCES if hold._alias == alias}
    return sorted(declared) or [load_settings().database_schema]


def close_before_database_changes(connection: Any, **_: object) -> None:
    """Disconnect when Django connects without a database: it does so to create, copy or drop one.

    PostgreSQL neither copies nor drops a database that has other connections.
    """
    if connection.alias == NO_DB_ALIAS:
        for hold in list(_INSTANCES):
            hold.close_sync()


def _assemble(alias: str, *args: Any, **kwargs: Any) -> Runtime:
    runtime = assemble(*args, **kwargs, store_of=partial(_following_store, alias))
    return replace(runtime, executor=_CleaningExecutor(runtime.executor))


def _following_store(alias: str, settings: Settings, *, clock: Clock) -> Store:
    def store_at(url: str) -> Store:
        return open_store(settings.model_copy(update={"database_url": url}), clock=clock)

    return cast("Store", FollowingStore(partial(database_url, alias), store_at))


class _CleaningExecutor:
    """Runs plain functions on *executor*, and closes old connections of Django before and after each."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        def call() -> T:
            close_old_connections()
            try:
                return function()
            finally:
                close_old_connections()

        return self._executor.run(call)

    def close(self) -> None:
        self._executor.close()
