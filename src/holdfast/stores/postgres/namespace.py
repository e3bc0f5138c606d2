"""The schema of an application's tables in a database, and the names that depend on it.

Several applications can share one database, each in a schema of its own. The statements are written for the schema
`holdfast`; for another one they are rewritten once, when they are read from their files.
"""

import hashlib
import re

from holdfast.core.errors import ConfigError

DEFAULT = "holdfast"
LONGEST = 50
"""Characters of a schema's name: the channel's name has to fit into PostgreSQL's 63 as well."""

_NAME = re.compile(rf"[a-z_][a-z0-9_]{{0,{LONGEST - 1}}}")
_SYSTEM = ("public", "information_schema")
_APPLY_LOCK = 0x686F6C64
_WAKE_LOCK = 6041337


class Namespace:
    """The schema of one application, its NOTIFY channel and its advisory locks.

    Raises `ConfigError` for a name that is not a plain identifier, or belongs to PostgreSQL.

    >>> Namespace("billing").qualify("SELECT count(*) FROM holdfast.jobs")
    'SELECT count(*) FROM "billing".jobs'
    >>> Namespace("billing").channel
    'holdfast_billing'
    """

    def __init__(self, name: str = DEFAULT) -> None:
        if not _NAME.fullmatch(name) or name in _SYSTEM or name.startswith("pg_"):
            raise ConfigError(
                f"database_schema={name!r} is not usable: write 1 to {LONGEST} characters of a-z, 0-9 and _, not "
                "beginning with a digit or with pg_; public and information_schema are not possible"
            )
        self.name = name
        self.is_default = name == DEFAULT
        self.quoted = f'"{name}"'  # so that a reserved word such as "order" can be the name
        self.channel = DEFAULT if self.is_default else f"{DEFAULT}_{name}"
        self.apply_lock = _APPLY_LOCK if self.is_default else _hash(f"apply {name}", bits=63)
        """Serializes machines that apply the schema at the same time."""

    def qualify(self, sql: str) -> str:
        """Rewrite a statement that is written for the schema `holdfast`.

        Applications never wait for each other: advisory locks depend on the schema too.
        """
        if self.is_default:
            return sql
        qualified = re.sub(rf"\b{DEFAULT}\.(?=[a-z_])", f"{self.quoted}.", sql)
        qualified = qualified.replace(
            f"CREATE SCHEMA IF NOT EXISTS {DEFAULT};", f"CREATE SCHEMA IF NOT EXISTS {self.quoted};"
        )
        qualified = qualified.replace(f"pg_notify('{DEFAULT}',", f"pg_notify('{self.channel}',")
        qualified = qualified.replace(f"hashtextextended('{DEFAULT}:'", f"hashtextextended('{self.channel}:'")
        return qualified.replace(str(_WAKE_LOCK), str(_hash(f"wake {self.name}", bits=31)))


def _hash(text: str, *, bits: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> (64 - bits)
