"""`holdfast doctor`: whether this machine and its database can keep the promises."""

import asyncio
from importlib.util import find_spec

import typer

from holdfast.cli import checks
from holdfast.cli.checks import Check, Health
from holdfast.cli.exits import ExitCode
from holdfast.cli.output import JsonOption, show_json, show_table
from holdfast.cli.target import AppOption, UrlOption, chosen, missing_file
from holdfast.core.errors import StoreReadOnly, StoreUnavailable
from holdfast.face import Holdfast
from holdfast.ports import Store


def run(application: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Check database, durability, clock and installation."""
    hold = chosen(application, url)
    found = asyncio.run(_of_database(hold))
    if application is not None:
        found.append(checks.of_jobs([spec.name for spec in hold.parts.registry]))
    found.append(checks.of_loop(has_uvloop=find_spec("uvloop") is not None))
    failed = any(check.health is Health.FAIL for check in found)

    if as_json:
        show_json({"ok": not failed, "checks": [check._asdict() for check in found]})
    else:
        show_table(("check", "health", "detail"), found)
    if failed:
        raise typer.Exit(ExitCode.REFUSED)


async def _of_database(hold: Holdfast) -> list[Check]:
    path = missing_file(hold)
    if path is not None:
        return [
            Check(
                "database",
                Health.WARN,
                f"there is no file {path!r} yet; the first worker or submission makes it",
            )
        ]
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
    return [
        Check("database", Health.OK, answered),
        checks.of_schema(state),
        *checks.of_store(facts),
        *([checks.of_writing(await _refusal(store))] if state.current else []),
        checks.of_clock(facts, before, after),
    ]


async def _refusal(store: Store) -> str | None:
    """Tell why the store takes no writes, by one that changes nothing."""
    try:
        await store.promote(limit=0)
    except StoreReadOnly as error:
        return str(error)
    return None
