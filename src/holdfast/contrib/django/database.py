"""Which database Django uses, as an address for Holdfast."""

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
"""What of Django's OPTIONS says where and how to connect; the rest is about Django's own connections."""


def database_url(alias: str = "default") -> str:
    """Give the address of the database that Django knows as *alias* now; in a test, that of its test database.

    Raises `ConfigError` for one that cannot keep jobs: neither PostgreSQL nor SQLite, in memory, or not there.
    """
    connection = _connection(alias)
    match connection.vendor:
        case "postgresql":
            return postgresql_url(connection.settings_dict)
        case "sqlite" if not in_memory(connection):
            return f"sqlite:///{quote(str(Path(connection.settings_dict['NAME']).absolute()))}"
        case "sqlite":
            raise ConfigError(
                f"DATABASES[{alias!r}] is in memory, where no worker would see a job; in tests, for which Django "
                "does that with SQLite, submit within holdfast.testing.inline(), or keep their database in a file: "
                f"DATABASES[{alias!r}]['TEST'] = {{'NAME': 'test.sqlite3'}}; elsewhere let its NAME be a file"
            )
        case vendor:
            raise ConfigError(
                f"DATABASES[{alias!r}] is {vendor}, and jobs are kept in PostgreSQL or SQLite; "
                "name another alias, or use Holdfast(url) with a database of its own"
            )


def _connection(alias: str) -> Any:
    try:
        return connections[alias]
    except ConnectionDoesNotExist:
        raise ConfigError(
            f"DATABASES has no {alias!r}, which a DjangoHoldfast names; it has {', '.join(map(repr, connections))}"
        ) from None


def in_memory(connection: Any) -> bool:
    """Whether *connection* is to a SQLite database that no other process can see."""
    return connection.vendor == "sqlite" and bool(connection.is_in_memory_db())


def postgresql_url(settings: Mapping[str, Any]) -> str:
    """Write the address that *settings*, in Django's words, name.

    What is not set is left to libpq's own rules: its environment, its files.

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
    where = given["HOST"] + (given["PORT"] and f":{given['PORT']}")
    if given["HOST"].startswith("/"):  # the folder of a socket
        options |= {"host": given["HOST"]} | ({"port": given["PORT"]} if given["PORT"] else {})
        where = ""
    who = quote(given["USER"], safe="") + (given["PASSWORD"] and f":{quote(given['PASSWORD'], safe='')}")
    address = f"{who}@{where}" if who else where
    parameters = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{address}/{quote(given['NAME'], safe='')}{parameters}"
