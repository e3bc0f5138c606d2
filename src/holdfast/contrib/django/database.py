"""The address of Django's database, for Holdfast."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from holdfast.errors import ConfigError

PASSED_ON = (
    "gsslib",
    "krbsrvname",
    "passfile",
    "service",
    "servicefile",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslpassword",
    "sslrootcert",
    "target_session_attrs",
)
"""The keys of Django's OPTIONS that describe where and how to connect; the others concern Django's own connections."""


def database_url(alias: str = "default") -> str:
    """Return the current address of the database *alias* of Django; in a test, that of its test database.

    Raises `ConfigError` for a database that cannot store jobs: neither PostgreSQL nor SQLite, in memory, or undefined.
    """
    connection = _connection(alias)
    match connection.vendor:
        case "postgresql":
            return postgresql_url(connection.settings_dict)
        case "sqlite" if not in_memory(connection):
            return f"sqlite:///{quote(str(Path(connection.settings_dict['NAME']).absolute()))}"
        case "sqlite":
            raise ConfigError(
                f"DATABASES[{alias!r}] is in memory, where no worker would see a job; in tests, where this is Django's "
                "default for SQLite, submit within holdfast.testing.inline(), or keep the test database in a file: "
                f"DATABASES[{alias!r}]['TEST'] = {{'NAME': 'test.sqlite3'}}; elsewhere set NAME to a file"
            )
        case vendor:
            raise ConfigError(
                f"DATABASES[{alias!r}] is {vendor}, and jobs are stored in PostgreSQL or SQLite; "
                "name another alias, or use Holdfast(url) with a database of its own"
            )


def _connection(alias: str) -> Any:
    try:
        return connections[alias]
    except ConnectionDoesNotExist:
        raise ConfigError(
            f"DATABASES has no {alias!r}, which a DjangoHoldfast uses; it has {', '.join(map(repr, connections))}"
        ) from None


def in_memory(connection: Any) -> bool:
    """Whether *connection* is to a SQLite database that no other process can see."""
    return connection.vendor == "sqlite" and bool(connection.is_in_memory_db())


def postgresql_url(settings: Mapping[str, Any]) -> str:
    """Return the address of a database in Django's *settings*.

    Values that are not set are left to libpq: its environment variables and files.

    >>> empty = {"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "OPTIONS": {}}
    >>> postgresql_url(empty)
    'postgresql:///shop'
    >>> postgresql_url(empty | {"USER": "app", "PASSWORD": "a/b", "HOST": "db", "PORT": 6432})
    'postgresql://app:a%2Fb@db:6432/shop'
    >>> postgresql_url(empty | {"HOST": "/run/postgresql", "OPTIONS": {"sslmode": "require", "pool": True}})
    'postgresql:///shop?sslmode=require&host=%2Frun%2Fpostgresql'
    """
    given = {name: str(value or "") for name, value in settings.items() if name != "OPTIONS"}
    options = {name: value for name, value in settings["OPTIONS"].items() if name in PASSED_ON}
    host = given["HOST"] + (given["PORT"] and f":{given['PORT']}")
    if given["HOST"].startswith("/"):  # the folder of a socket
        options |= {"host": given["HOST"]} | ({"port": given["PORT"]} if given["PORT"] else {})
        host = ""
    user = quote(given["USER"], safe="") + (given["PASSWORD"] and f":{quote(given['PASSWORD'], safe='')}")
    address = f"{user}@{host}" if user else host
    parameters = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{address}/{quote(given['NAME'], safe='')}{parameters}"
