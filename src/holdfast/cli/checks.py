"""What a doctor looks at, and what it says: each check is a function of what was found."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.errors import SchemaError
from holdfast.ports import Depth, SchemaState
from holdfast.ports.store import Pause
from holdfast.stores.versions import ensure_fit

OLDEST_POSTGRES = 13
OTHERS_READ = 0o004
LARGEST_SKEW = timedelta(seconds=2)
LONGEST_SNAPSHOT = timedelta(minutes=10)
LONGEST_LINE = timedelta(minutes=5)
"""How long a job may be ready without anybody taking it."""

Facts = Mapping[str, str]


class Health(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Client(NamedTuple):
    """A client of an outside service that the application made: its class, and how often it retries by itself.

    *instead* is what to make it with, *place* the variable that holds it, if one does.
    """

    kind: str
    retries: int
    instead: str = "max_retries=0"
    place: str | None = None


class Check(NamedTuple):
    """One thing that was looked at: how it is, and what to do if that is not well."""

    name: str
    health: Health
    detail: str


def of_absent_file(path: str, *, has_folder: bool) -> Check:
    """Whether a SQLite file that is not there can be made: the file comes by itself, its folder does not."""
    if has_folder:
        return _warn("database", f"there is no file {path!r} yet; the first worker or submission makes it")
    return Check("database", Health.FAIL, f"there is no folder for the file {path!r}; create it first")


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


def of_strangers(waiting: Iterable[str], declared: Iterable[str]) -> Check:
    """Whether jobs wait under names that the application does not know."""
    unknown = sorted(set(waiting) - set(declared))
    if unknown:
        return _warn(
            "unknown jobs",
            f"jobs wait that this application does not declare: {', '.join(unknown)}; import the modules that "
            "declare them, name them in aliases=, or cancel them",
        )
    return _ok("unknown jobs", "the application declares all that wait, as far as the last thousand tell")


def of_clients(clients: Sequence[Client], *, attempts: int) -> Check:
    """Whether clients retry beneath our own retries, which multiplies the calls; a stage has so many *attempts*."""
    eager = sorted({_eager(client, attempts) for client in clients if client.retries > 0})
    if eager:
        return _warn("sdk retries", f"{'; '.join(eager)}. Their waits in between hold a slot, too")
    return _ok("sdk retries", f"{len(clients)} clients seen, none retries by itself")


def _eager(client: Client, attempts: int) -> str:
    name = client.kind if client.place is None else f"{client.place}, of {client.kind},"
    calls = attempts * (client.retries + 1)
    return (
        f"{name} retries {client.retries} times by itself, so that {attempts} attempts are up to {calls} calls: "
        f"make it with {client.instead}"
    )


def of_pauses(pauses: Sequence[Pause]) -> Check:
    """Whether somebody paused a queue, and perhaps forgot."""
    if not pauses:
        return _ok("paused queues", "none")
    told = "; ".join(
        f"{pause.queue!r} since {pause.at:%Y-%m-%d %H:%M} UTC by {pause.actor}"
        + (f" ({pause.reason})" if pause.reason else "")
        for pause in pauses
    )
    return _warn("paused queues", f"{told}: `holdfast queues resume` lets its jobs run again")


def of_backlog(depths: Iterable[Depth]) -> Check:
    """Whether jobs are ready that nobody takes."""
    late = [depth for depth in depths if depth.state == "ready" and depth.oldest > LONGEST_LINE]
    if not late:
        return _ok("backlog", f"no job has been ready for more than {_length(LONGEST_LINE)}")
    told = "; ".join(
        f"{depth.jobs} jobs of {depth.queue!r} are ready, one for {_length(depth.oldest)}" for depth in late
    )
    return _warn("backlog", f"{told}: start workers for the queue, or more of them")


class Letters(NamedTuple):
    """How dead letters stand: how many there are and are open, and how many of those somebody should be woken for.

    *overdue* says whether there are letters that the retention lets go; *hooks* are those who are told of tickets,
    `None` if the application that declares them is not known.
    """

    total: int
    open: int
    pages: int
    overdue: bool
    hooks: int | None


def of_letters(letters: Letters, *, has_archive: bool) -> Check:
    """Whether dead letters pile up, and whether anybody hears of them."""
    told = f"{letters.open} open, {letters.total} in all"
    if letters.overdue and not has_archive:
        return _warn(
            "dead letters",
            f"{told}; some are older, or there are more, than is to be kept, and without an archive none is ever "
            "deleted: name one in HOLDFAST_ARCHIVE_URL",
        )
    if letters.pages and letters.hooks == 0:
        told += f"; {letters.pages} for which somebody should be woken, and only the log tells: see hold.on_ticket"
    return _ok("dead letters", told)


def of_archive(refusal: str | None, *, can_seal: bool) -> Check:
    """Whether the archive can be used; *refusal* is what it said when its contents were asked for."""
    if not can_seal:
        return _warn(
            "archive",
            "nothing can be sealed, so nothing is archived and letters are kept: pip install 'holdfast[archive]'",
        )
    if refusal is not None:
        return _warn("archive", f"{refusal}. What cannot be archived is kept")
    return _ok("archive", "answers")


def of_loop(*, has_uvloop: bool) -> Check:
    """Whether workers get the quicker event loop."""
    if has_uvloop:
        return _ok("uvloop", "installed; workers use it")
    return _warn("uvloop", "not installed; workers are slower without: pip install 'holdfast[postgres]'")


def _of_postgres(facts: Facts) -> Iterator[Check]:
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


def _of_sqlite(facts: Facts) -> Iterator[Check]:
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
    if int(mode, 8) & OTHERS_READ:
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
    """Whether a transaction is open so long that vacuum cannot clean up behind the jobs."""
    opened, prepared = (
        timedelta(seconds=int(facts[name])) for name in ("oldest_snapshot_sec", "oldest_prepared_sec")
    )
    if prepared > LONGEST_SNAPSHOT:
        return _warn(
            "snapshots",
            f"a prepared transaction is {_length(prepared)} old, and vacuum cleans up nothing younger: "
            "commit it or roll it back (pg_prepared_xacts)",
        )
    if opened > LONGEST_SNAPSHOT:
        return _warn(
            "snapshots",
            f"a transaction has been open for {_length(opened)}, and vacuum cleans up nothing younger: end it "
            "(pg_stat_activity), and set idle_in_transaction_session_timeout for its user",
        )
    return _ok("snapshots", f"no transaction is older than {_length(LONGEST_SNAPSHOT)}")


def _hints(facts: Facts) -> Check:
    if facts["listens"] == "yes":
        return _ok("hints", "workers hear of new jobs at once")
    return _warn(
        "hints",
        "nothing is heard through a pooler, so jobs start with the next poll; give the server's own address in "
        "HOLDFAST_DATABASE_DIRECT_URL to be told at once",
    )


def _length(length: timedelta) -> str:
    """Write a length for people, without its fraction of a second.

    >>> _length(timedelta(minutes=90, milliseconds=5))
    '1:30:00'
    """
    return str(timedelta(seconds=int(length.total_seconds())))


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
