"""The checks of `holdfast doctor`: each is a function of what was read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.errors import SchemaError
from holdfast.ports import Depth, SchemaState
from holdfast.ports.queues import Pause
from holdfast.stores.schema_version import ensure_fit

OLDEST_POSTGRES = 13
READABLE_BY_OTHERS = 0o004
MAX_CLOCK_SKEW = timedelta(seconds=2)
MAX_SNAPSHOT_AGE = timedelta(minutes=10)
MAX_READY_AGE = timedelta(minutes=5)
"""How long a job may be ready before the backlog is a warning."""

Facts = Mapping[str, str]


class Health(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Client(NamedTuple):
    """A client of an external service that the application created: its class, and its number of retries.

    *instead* is the argument that turns retries off, *location* the variable that holds the client, if any.
    """

    kind: str
    retries: int
    instead: str = "max_retries=0"
    location: str | None = None


class Check(NamedTuple):
    """A check with its result, and what to do about it."""

    name: str
    health: Health
    detail: str


def of_absent_file(path: str, *, has_folder: bool) -> Check:
    """Whether a missing SQLite file can be created: its folder must exist."""
    if has_folder:
        return _warn(
            "database", f"the file {path!r} does not exist yet; the first worker or submission creates it"
        )
    return Check("database", Health.FAIL, f"the folder of the file {path!r} does not exist; create it")


def of_schema(state: SchemaState) -> Check:
    """Whether this code can work on the tables that are there."""
    try:
        ensure_fit(state)
    except SchemaError as error:
        return Check("schema", Health.FAIL, str(error))
    return _ok("schema", f"version {state.found}")


def of_broker(name: str, product: str | None, error: str | None) -> Check:
    """Whether a declared broker can be reached: *product* is what answered, *error* why nothing did."""
    if product is None:
        return Check(f"broker {name}", Health.FAIL, error or "no answer")
    return _ok(f"broker {name}", product)


def of_writing(refusal: str | None) -> Check:
    """Whether the database accepts writes; *refusal* is its error, if any."""
    return _ok("writable", "yes") if refusal is None else Check("writable", Health.FAIL, refusal)


def of_clock(facts: Facts, before: datetime, after: datetime) -> Check:
    """Compare the clock of the database, which decides, with that of this machine, used in ids and logs."""
    middle = before + (after - before) / 2
    skew = datetime.fromisoformat(facts["now"]) - middle
    apart = f"{abs(skew).total_seconds():.3f} s apart"
    if abs(skew) - (after - before) / 2 > MAX_CLOCK_SKEW:
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


def of_unknown_jobs(waiting: Iterable[str], declared: Iterable[str]) -> Check:
    """Whether queued jobs have names that the application does not declare."""
    unknown = sorted(set(waiting) - set(declared))
    if unknown:
        return _warn(
            "unknown jobs",
            f"queued jobs have names that this application does not declare: {', '.join(unknown)}; import the "
            "modules that declare them, name them in aliases=, or cancel them",
        )
    return _ok("unknown jobs", "the application declares the names of the last thousand queued jobs")


def of_clients(clients: Sequence[Client], *, attempts: int) -> Check:
    """Whether clients retry on their own, which multiplies the calls; a stage has *attempts* attempts."""
    retrying = sorted({_describe_retries(client, attempts) for client in clients if client.retries > 0})
    if retrying:
        return _warn("sdk retries", f"{'; '.join(retrying)}. Their waits occupy a slot")
    return _ok("sdk retries", f"{len(clients)} clients found, none retries")


def _describe_retries(client: Client, attempts: int) -> str:
    name = client.kind if client.location is None else f"{client.location}, of {client.kind},"
    calls = attempts * (client.retries + 1)
    return (
        f"{name} retries {client.retries} times, so that {attempts} attempts make up to {calls} calls: "
        f"make it with {client.instead}"
    )


def of_pauses(pauses: Sequence[Pause]) -> Check:
    """Whether queues are paused."""
    if not pauses:
        return _ok("paused queues", "none")
    detail = "; ".join(
        f"{pause.queue!r} since {pause.at:%Y-%m-%d %H:%M} UTC by {pause.actor}"
        + (f" ({pause.reason})" if pause.reason else "")
        for pause in pauses
    )
    return _warn("paused queues", f"{detail}: `holdfast queues resume` resumes it")


def of_backlog(depths: Iterable[Depth]) -> Check:
    """Whether ready jobs are not claimed."""
    late = [depth for depth in depths if depth.state == "ready" and depth.oldest > MAX_READY_AGE]
    if not late:
        return _ok("backlog", f"no job has been ready for more than {_format_length(MAX_READY_AGE)}")
    detail = "; ".join(
        f"{depth.jobs} jobs of {depth.queue!r} are ready, one for {_format_length(depth.oldest)}"
        for depth in late
    )
    return _warn("backlog", f"{detail}: start workers for the queue, or more of them")


class Letters(NamedTuple):
    """The number of dead letters, of open ones, and of open ones of level page.

    *overdue* is whether letters exceed the retention; *hooks* is the number of ticket hooks,
    `None` if the application that declares them is not known.
    """

    total: int
    open: int
    pages: int
    overdue: bool
    hooks: int | None


def of_letters(letters: Letters, *, has_archive: bool) -> Check:
    """Whether dead letters accumulate, and whether anyone is notified of them."""
    detail = f"{letters.open} open, {letters.total} in all"
    if letters.overdue and not has_archive:
        return _warn(
            "dead letters",
            f"{detail}; the retention is exceeded, and without an archive no letter is ever "
            "deleted: set HOLDFAST_ARCHIVE_URL",
        )
    if letters.pages and letters.hooks == 0:
        detail += (
            f"; {letters.pages} of level page, and no hook is registered to notify anyone: see hold.on_ticket"
        )
    return _ok("dead letters", detail)


def of_archive(refusal: str | None, *, can_encrypt: bool) -> Check:
    """Whether the archive can be used; *refusal* is its error when it was listed, if any."""
    if not can_encrypt:
        return _warn(
            "archive",
            "cryptography is not installed, so letters are kept and not archived: pip install 'holdfast[archive]'",
        )
    if refusal is not None:
        return _warn("archive", f"{refusal}. Letters that cannot be archived are kept")
    return _ok("archive", "answers")


def of_loop(*, has_uvloop: bool) -> Check:
    """Whether workers use the faster event loop."""
    if has_uvloop:
        return _ok("uvloop", "installed; workers use it")
    return _warn("uvloop", "not installed, so workers are slower: pip install 'holdfast[postgres]'")


def of_postgres(facts: Facts) -> Iterator[Check]:
    yield _version(facts["server_version"])
    yield _ok("tables", f"in the schema {facts['schema']}")
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
    yield _autovacuum(facts)
    yield _snapshots(facts)
    yield _connections(facts)
    yield _hints(facts)


def of_sqlite(facts: Facts) -> Iterator[Check]:
    yield _ok("version", f"SQLite {facts['server_version']}")
    yield _file_mode(facts["file_mode"])
    yield _durable(facts, "synchronous", {"FULL", "EXTRA"}, "a power cut can lose jobs: it has to be FULL")
    if facts["journal_mode"] == "wal":
        yield _ok("journal_mode", "wal")
    else:
        yield _warn(
            "journal_mode",
            f"{facts['journal_mode']}: readers and the writer block each other; keep the file on a local disk",
        )


def _file_mode(mode: str) -> Check:
    """Whether other users of the machine can read the file."""
    if int(mode, 8) & READABLE_BY_OTHERS:
        return _warn(
            "file mode",
            f"{mode}: other users of this machine can read arguments, results and the redaction key; chmod 600 the "
            "file, and the -wal and -shm files beside it",
        )
    return _ok("file mode", mode)


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


def _autovacuum(facts: Facts) -> Check:
    if facts["autovacuum"] != "on":
        return _warn("autovacuum", "off: tables of jobs grow without end; set it to on")
    if facts["jobs_autovacuum"] not in ("on", "true", "yes", "1"):
        return _warn(
            "autovacuum",
            f"off for {facts['schema']}.jobs, which changes most: "
            f"ALTER TABLE {facts['schema']}.jobs RESET (autovacuum_enabled)",
        )
    return _ok("autovacuum", "on")


def _snapshots(facts: Facts) -> Check:
    """Whether a long transaction keeps vacuum from removing dead rows."""
    opened, prepared = (
        timedelta(seconds=int(facts[name])) for name in ("oldest_snapshot_sec", "oldest_prepared_sec")
    )
    if prepared > MAX_SNAPSHOT_AGE:
        return _warn(
            "snapshots",
            f"a prepared transaction is {_format_length(prepared)} old, and vacuum removes no newer rows: "
            "commit it or roll it back (pg_prepared_xacts)",
        )
    if opened > MAX_SNAPSHOT_AGE:
        return _warn(
            "snapshots",
            f"a transaction has been open for {_format_length(opened)}, and vacuum removes no newer rows: end it "
            "(pg_stat_activity), and set idle_in_transaction_session_timeout for its user",
        )
    return _ok("snapshots", f"no transaction is older than {_format_length(MAX_SNAPSHOT_AGE)}")


def _hints(facts: Facts) -> Check:
    if facts["listens"] == "yes":
        return _ok("hints", "workers are notified of new jobs immediately")
    return _warn(
        "hints",
        "notifications do not pass through a pooler, so jobs start at the next poll; set "
        "HOLDFAST_DATABASE_DIRECT_URL to the address of the server",
    )


def _format_length(length: timedelta) -> str:
    """Format a duration without its fraction of a second.

    >>> _format_length(timedelta(minutes=90, milliseconds=5))
    '1:30:00'
    """
    return str(timedelta(seconds=int(length.total_seconds())))


def _connections(facts: Facts) -> Check:
    most, used, needed = (
        int(facts[name]) for name in ("max_connections", "connections", "connections_per_worker")
    )
    left = max(most - int(facts["superuser_reserved_connections"]) - used, 0)
    detail = f"{used} of {most} in use; a worker takes up to {needed}"
    if left < needed:
        return _warn("connections", f"{detail}: raise max_connections, or put fewer clients on this server")
    return _ok("connections", f"{detail}, so {left // needed} more fit")


def _ok(name: str, detail: str) -> Check:
    return Check(name, Health.OK, detail)


def _warn(name: str, detail: str) -> Check:
    return Check(name, Health.WARN, detail)
