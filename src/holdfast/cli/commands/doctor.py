"""`holdfast doctor`: checks that the machine and the database are configured safely."""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import typer

from holdfast.app import Holdfast
from holdfast.cli.doctor import checks, sdk_clients
from holdfast.cli.doctor.checks import Check, Health, Letters
from holdfast.cli.doctor.fleets import check_fleets
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.options.app_loader import AppOption, UrlOption, resolve
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.cli.views.table import Column, Fit, show_table
from holdfast.core.dead_letters.letter import OPEN, LetterFilter
from holdfast.core.dead_letters.ticket import of_letter
from holdfast.core.errors import (
    ArchiveUnavailable,
    BrokerError,
    ConfigError,
    SchemaError,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.core.failures.escalation import Escalation
from holdfast.core.jobs.job import JobFilter
from holdfast.core.jobs.states import Status
from holdfast.engine.registry import BrokerSpec
from holdfast.stores.schema_version import ensure_fit

SAMPLE = 1_000
"""Number of queued jobs, and of open letters, that are checked."""


def run(application: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Check the database, its durability settings, the clock, brokers and the installation; exit with 1 if a check fails."""
    hold = resolve(application, url)
    found = asyncio.run(_check_servers(hold))
    declared = [spec.name for spec in hold.runtime.registry]
    if application is not None or declared:
        found.append(checks.of_jobs(declared))
        found.append(
            checks.of_clients(list(sdk_clients.found()), attempts=hold.settings.retry_policy.attempts)
        )
    found.append(checks.of_loop(has_uvloop=find_spec("uvloop") is not None))
    failed = any(check.health is Health.FAIL for check in found)

    if as_json:
        show_json({"ok": not failed, "checks": [check._asdict() for check in found]})
    else:
        show_table((Column("check"), Column("health"), Column("detail", Fit.FOLDED)), found)
    if failed:
        raise typer.Exit(ExitCode.REFUSED)


async def _check_servers(hold: Holdfast) -> list[Check]:
    found = await _check_database(hold)
    found += [await _check_broker(hold, spec) for spec in hold.runtime.registry.brokers.values()]
    return found + await check_fleets(hold)


async def _check_broker(hold: Holdfast, spec: BrokerSpec) -> Check:
    if hold.runtime.open_broker is None:
        return checks.of_broker(spec.name, None, "this Holdfast has no clients of brokers")
    try:
        client = hold.runtime.open_broker(spec)
        try:
            return checks.of_broker(spec.name, await client.check(), None)
        finally:
            await client.close()
    except (BrokerError, ConfigError) as error:
        return checks.of_broker(spec.name, None, str(error))


async def _check_database(hold: Holdfast) -> list[Check]:
    path = hold.database.missing_file
    if path is not None:
        return [checks.of_absent_file(path, has_folder=Path(path).parent.is_dir())]
    try:
        return await _run_checks(hold)
    except StoreUnavailable as error:
        return [Check("database", Health.FAIL, str(error))]
    finally:
        await hold.close()


async def _run_checks(hold: Holdfast) -> list[Check]:
    state = await hold.database.schema_state()
    before = hold.runtime.clock.now()
    facts = await hold.database.facts()
    after = hold.runtime.clock.now()
    answered = f"answers in {(after - before).total_seconds() * 1000:.1f} ms"
    found = [
        Check("database", Health.OK, answered),
        checks.of_schema(state),
        *(checks.of_postgres(facts) if hold.database.is_postgres else checks.of_sqlite(facts)),
        checks.of_clock(facts, before, after),
    ]
    try:
        ensure_fit(state)
    except SchemaError:
        return found  # reported above; the queries do not fit other tables
    return found + await _check_tables(hold)


async def _check_tables(hold: Holdfast) -> list[Check]:
    """Run the checks that need the tables of this version."""
    found = [
        checks.of_writing(await _refusal(hold)),
        checks.of_pauses(await hold.queues.pauses()),
        checks.of_backlog(await hold.queues.depths()),
        checks.of_letters(await _letters(hold), has_archive=hold.dead_letters.has_archive),
    ]
    if hold.dead_letters.has_archive:
        found.append(
            checks.of_archive(await _unreachable(hold), can_encrypt=find_spec("cryptography") is not None)
        )
    declared = [name for spec in hold.runtime.registry for name in (spec.name, *spec.aliases)]
    if declared:
        queued = await hold.find(JobFilter(status=Status.QUEUED, limit=SAMPLE))
        found.append(checks.of_unknown_jobs([job.name for job in queued], declared))
    return found


async def _letters(hold: Holdfast) -> Letters:
    """Count dead letters; their levels are those of the last thousand open ones."""
    counts = await hold.dead_letters.counts()
    opened = await hold.dead_letters.list(LetterFilter(states=OPEN, limit=SAMPLE))
    return Letters(
        total=sum(counts.values()),
        open=sum(count for (_, state), count in counts.items() if state in OPEN),
        pages=sum(of_letter("", each.last_failure_at, each).level is Escalation.PAGE for each in opened),
        overdue=await hold.dead_letters.is_archiving_due(),
        hooks=len(hold.runtime.letters.hooks) if any(hold.runtime.registry) else None,
    )


async def _unreachable(hold: Holdfast) -> str | None:
    """Return why the archive cannot be read, or `None`."""
    try:
        await hold.dead_letters.ensure_archive()
    except ArchiveUnavailable as error:
        return str(error)
    return None


async def _refusal(hold: Holdfast) -> str | None:
    """Return why the database accepts no writes, or `None`."""
    try:
        await hold.database.ensure_writable()
    except StoreReadOnly as error:
        return str(error)
    return None
