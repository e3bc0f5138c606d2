"""`holdfast doctor`: whether this machine and its database can keep the promises."""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import typer

from holdfast.cli import checks, clients
from holdfast.cli.checks import Check, Health, Letters
from holdfast.cli.exits import ExitCode
from holdfast.cli.output import JsonOption, show_json
from holdfast.cli.tables import Column, Room, show_table
from holdfast.cli.target import AppOption, UrlOption, chosen, missing_file
from holdfast.core.errors import ArchiveUnavailable, SchemaError, StoreReadOnly, StoreUnavailable
from holdfast.core.exhaustion import Follow
from holdfast.core.jobs import JobFilter
from holdfast.core.letters import OPEN, Letter, LetterFilter
from holdfast.core.states import Status
from holdfast.core.tickets import of_letter
from holdfast.face import Holdfast
from holdfast.ports import Store
from holdfast.ports.archive import Archive
from holdfast.stores.versions import ensure_fit

SAMPLE = 1_000
"""Queued jobs that are looked at for names that nobody declares, and letters for who is told of them."""


def run(application: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Check database, durability, clock and installation."""
    hold = chosen(application, url)
    found = asyncio.run(_of_database(hold))
    declared = [spec.name for spec in hold.parts.registry]
    if application is not None or declared:
        found.append(checks.of_jobs(declared))
        found.append(checks.of_clients(list(clients.found()), attempts=hold.settings.retry_policy.attempts))
    found.append(checks.of_loop(has_uvloop=find_spec("uvloop") is not None))
    failed = any(check.health is Health.FAIL for check in found)

    if as_json:
        show_json({"ok": not failed, "checks": [check._asdict() for check in found]})
    else:
        show_table((Column("check"), Column("health"), Column("detail", Room.FOLDED)), found)
    if failed:
        raise typer.Exit(ExitCode.REFUSED)


async def _of_database(hold: Holdfast) -> list[Check]:
    path = missing_file(hold)
    if path is not None:
        return [checks.of_absent_file(path, has_folder=Path(path).parent.is_dir())]
    try:
        return await _looked_at(hold)
    except StoreUnavailable as error:
        return [Check("database", Health.FAIL, str(error))]
    finally:
        await hold.close()


async def _looked_at(hold: Holdfast) -> list[Check]:
    store, clock = hold.parts.store, hold.parts.clock
    state = await store.schema_state()
    before = clock.now()
    facts = await store.facts()
    after = clock.now()
    answered = f"answers in {(after - before).total_seconds() * 1000:.1f} ms"
    found = [
        Check("database", Health.OK, answered),
        checks.of_schema(state),
        *checks.of_store(facts),
        checks.of_clock(facts, before, after),
    ]
    try:
        ensure_fit(state)
    except SchemaError:
        return found  # said above; what this code would ask of other tables makes no sense
    return found + await _of_tables(hold, store)


async def _of_tables(hold: Holdfast, store: Store) -> list[Check]:
    """Look at what only tables of this version can tell."""
    found = [
        checks.of_writing(await _refusal(store)),
        checks.of_pauses(await store.paused_queues()),
        checks.of_backlog(await store.depths()),
    ]
    archive = hold.parts.letters.archive
    found.append(checks.of_letters(await _letters(hold, store), has_archive=archive is not None))
    if archive is not None:
        found.append(
            checks.of_archive(await _unreachable(archive), can_seal=find_spec("cryptography") is not None)
        )
    declared = [name for spec in hold.parts.registry for name in (spec.name, *spec.aliases)]
    if declared:
        queued = await store.find(JobFilter(status=Status.QUEUED, limit=SAMPLE))
        found.append(checks.of_strangers([job.name for job in queued], declared))
    return found


async def _letters(hold: Holdfast, store: Store) -> Letters:
    """Look at dead letters; how loudly they are told, as far as the last thousand open ones tell."""
    retention = hold.parts.letters.retention
    counts = await store.letter_counts()
    opened = await store.letters(LetterFilter(states=OPEN, limit=SAMPLE))
    overdue = await store.letters_to_archive(
        older_than=retention.letters, beyond=retention.most_letters, limit=1
    )
    return Letters(
        total=sum(counts.values()),
        open=sum(count for (_, state), count in counts.items() if state in OPEN),
        pages=sum(_level(letter) is Follow.PAGE for letter in opened),
        overdue=bool(overdue),
        hooks=len(hold.parts.letters.hooks) if any(hold.parts.registry) else None,
    )


def _level(letter: Letter) -> Follow:
    return of_letter("", letter.last_failure_at, letter).level


async def _unreachable(archive: Archive) -> str | None:
    """Tell why the archive cannot be looked into."""
    try:
        await archive.names()
    except ArchiveUnavailable as error:
        return str(error)
    return None


async def _refusal(store: Store) -> str | None:
    """Tell why the store takes no writes, by one that changes nothing."""
    try:
        await store.promote(limit=0)
    except StoreReadOnly as error:
        return str(error)
    return None
