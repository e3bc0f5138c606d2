"""Queries are written for one schema, and rewritten for another without a rest of the first."""

import re

import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigError
from holdfast.stores.postgres.namespace import LONGEST, Namespace
from holdfast.stores.queries import Queries, migrations

PACKAGE = "holdfast.stores.postgres"
LOCK_NUMBER = re.compile(r"lock\s*\(\s*(\d+)")
LEFT = re.compile(
    r"""
    \bholdfast\s*\.          # a table or a function
    | SCHEMA[^;]*\bholdfast\b
    | notify\s*\(\s*'holdfast'
    | 'holdfast:             # the text of an advisory lock
    """,
    re.VERBOSE | re.IGNORECASE,
)


def without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql)


def everything() -> dict[str, str]:
    """All texts of the store, as their files have them."""
    statements = Queries(PACKAGE)
    return {name: statements[name] for name in statements} | {
        f"migration {version}": script for version, script in migrations(PACKAGE)
    }


def test_the_default_schema_leaves_every_statement_as_it_is_written() -> None:
    assert all(Namespace().qualify(sql) == sql for sql in everything().values())


@pytest.mark.parametrize("name", everything())
def test_nothing_of_the_default_schema_is_left_in_a_statement_for_another(name: str) -> None:
    written = without_comments(everything()[name])

    qualified = Namespace("billing").qualify(written)

    assert LEFT.findall(qualified) == []
    assert not set(LOCK_NUMBER.findall(written)) & set(LOCK_NUMBER.findall(qualified))


def test_two_schemas_have_no_channel_and_no_lock_in_common() -> None:
    names = [Namespace(), Namespace("billing"), Namespace("shop")]

    assert len({each.channel for each in names}) == len(names)
    assert len({each.apply_lock for each in names}) == len(names)
    assert len({each.qualify("lock_xact(6041337, 2)") for each in names}) == len(names)


@pytest.mark.parametrize("name", ["a", "order", "_x9", "b" * LONGEST])
def test_a_plain_identifier_is_taken_also_if_sql_reserves_it(name: str) -> None:
    assert Namespace(name).quoted == f'"{name}"'
    assert len(Namespace(name).channel) <= 63


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Billing",
        "9a",
        "a-b",
        'a"b',
        "a.b",
        "a b",
        "a;",
        "é",
        "a\n",
        "b" * (LONGEST + 1),
        "pg_x",
        "public",
    ],
)
def test_another_name_is_refused_before_anything_is_connected(name: str) -> None:
    with pytest.raises(ConfigError, match=r"database_schema=.* is not usable"):
        Holdfast("postgresql://localhost/none", schema=name)


def test_sqlite_has_no_schemas_and_says_so() -> None:
    with pytest.raises(ConfigError, match="database_schema='billing' is for PostgreSQL"):
        Holdfast("sqlite:///jobs.db", schema="billing")

    assert Holdfast("sqlite:///jobs.db", schema="holdfast").settings.database_schema == "holdfast"


def test_the_environment_names_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_SCHEMA", "billing")

    assert Holdfast("postgresql://localhost/none").settings.database_schema == "billing"
