"""What a doctor looks at, and what it says: each check is a function of what was found."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.errors import SchemaError
from holdfast.ports import SchemaState
from holdfast.stores.versions import ensure_fit

OLDEST_POSTGRES = 13
LARGEST_SKEW = timedelta(seconds=2)

Facts = Mapping[str, str]


class Health(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """One thing that was looked at: how it is, and what to do if that is not well."""

    name: str
    health: Health
    detail: str


def of_schema(state: SchemaState) -> Check:
    """Whether this code can work on the tables that are there."""
    try:
        ensure_fit(state)
    except SchemaError as error:
        return Check("schema", Health.FAIL, str(error))
    return _ok("schema", f"version {state.found}")


def of_store(facts: Facts) -> Iterator[Check]:
    """Look at the settings of whichever database it is."""
    yield from _of_postgres(facts) if "fsync" in facts else _of_sqlite(facts)


def of_writing(refusal: str | None) -> Check:
    """Whether the database takes writes; *refusal* is what it said to one that changes nothing."""
    return _ok("writable", "yes") if refusal is None else Check("writable", Health.FAIL, refusal)


def of_clock(facts: Facts, before: datetime, after: datetime) -> Check:
    """Compare the clocks: the database's decides, this machine's goes into ids and log lines."""
    middle = before + (after - before) / 2
    skew = datetime.fromisoformat(facts["now"]) - middle
    apart = f"{abs(skew).total_seconds():.3f} s apart"
    if abs(skew) - (after - before) / 2 > LARGEST_SKEW:
        return _warn(
            "clock",
            f"this machine and the database are {apart}; leases follow the database, but job ids and logs do not: "
            "synchronise the clocks",
        )
    return _ok("clock", f"this machine and the database are {apart}")


def of_jobs(names: list[str]) -> Check:
    """Whether the application declares anything to run."""
    if not names:
        return _warn("jobs", "the application declares no job; import the modules that declare them")
    return _ok("jobs", f"{len(names)} declared: {', '.join(sorted(names))}")


def of_loop(*, has_uvloop: bool) -> Check:
    """Whether workers get the quicker event loop."""
    if has_uvloop:
        return _ok("uvloop", "installed; workers use it")
    return _warn("uvloop", "not installed; workers are slower without: pip install 'holdfast[postgres]'")


def _of_postgres(facts: Facts) -> Iterator[Check]:
    yield _version(facts["server_version"])
    yield _durable(
        facts, "fsync", {"on"}, "a crash of the machine can lose or damage everything: set it to on"
    )
    yield _durable(
        facts,
        "synchronous_commit",
        {"on", "local", "remote_write", "remote_apply"},
        "a crash can lose jobs that were acknowledged: set it to on",
    )
    if facts["full_page_writes"] == "on":
        yield _ok("full_page_writes", "on")
    else:
        yield _warn(
            "full_page_writes",
            "off: safe only on a file system that never writes half a page; else set it to on",
        )
    if facts["autovacuum"] == "on":
        yield _ok("autovacuum", "on")
    else:
        yield _warn("autovacuum", "off: tables of jobs grow without end; set it to on")
    yield _connections(facts)


def _of_sqlite(facts: Facts) -> Iterator[Check]:
    yield _ok("version", f"SQLite {facts['server_version']}")
    yield _durable(facts, "synchronous", {"FULL", "EXTRA"}, "a power cut can lose jobs: it has to be FULL")
    if facts["journal_mode"] == "wal":
        yield _ok("journal_mode", "wal")
    else:
        yield _warn(
            "journal_mode",
            f"{facts['journal_mode']}: readers and the writer block each other; keep the file on a local disk",
        )


def _version(text: str) -> Check:
    major = text.partition(".")[0].split()[0]
    if major.isdigit() and int(major) < OLDEST_POSTGRES:
        return Check(
            "version", Health.FAIL, f"PostgreSQL {text} is too old; version {OLDEST_POSTGRES} is needed"
        )
    return _ok("version", f"PostgreSQL {text}")


def _durable(facts: Facts, name: str, safe: set[str], otherwise: str) -> Check:
    value = facts[name]
    return _ok(name, value) if value in safe else Check(name, Health.FAIL, f"{value}: {otherwise}")


def _connections(facts: Facts) -> Check:
    most, used, wanted = (
        int(facts[name]) for name in ("max_connections", "connections", "connections_per_worker")
    )
    left = max(most - int(facts["superuser_reserved_connections"]) - used, 0)
    told = f"{used} of {most} in use; a worker takes up to {wanted}"
    if left < wanted:
        return _warn("connections", f"{told}: raise max_connections, or put fewer clients on this server")
    return _ok("connections", f"{told}, so {left // wanted} more fit")


def _ok(name: str, detail: str) -> Check:
    return Check(name, Health.OK, detail)


def _warn(name: str, detail: str) -> Check:
    return Check(name, Health.WARN, detail)
