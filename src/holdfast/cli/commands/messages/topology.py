"""`holdfast topology`: print, check and create the exchanges, queues and bindings of the declared brokers."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from holdfast.app import Holdfast
from holdfast.cli.exit_codes import ExitCode, print_status
from holdfast.cli.options.app_loader import (
    APP_HINT,
    ApplicationArgument,
    AppOption,
    Target,
    application_reference,
    resolve,
)
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.cli.views.table import Column, Fit, show_table
from holdfast.core.errors import ConfigError
from holdfast.core.messages.topology import Presence, Topology, TopologyPart
from holdfast.engine.registry import BrokerSpec
from holdfast.ports.messages.broker import TopologyBroker

COLUMNS = (
    Column("broker", Fit.CUT),
    Column("kind"),
    Column("name", Fit.FOLDED),
    Column("presence"),
    Column("detail", Fit.FOLDED, omit_if=("-",)),
)

app = typer.Typer(no_args_is_help=True, help="Check and create exchanges, queues and bindings.")

ManagementOption = Annotated[
    str | None,
    typer.Option(
        "--management",
        metavar="URL",
        help="Read bindings from the management API at this address, such as http://localhost:15672.",
    ),
]


class _Line(NamedTuple):
    """A part of the topology of a broker."""

    broker: str
    kind: str
    name: str
    presence: Presence
    detail: str


@app.command("print")
def print_topology(name: ApplicationArgument = None, application: AppOption = None) -> None:
    """Print the declared topology of each broker as JSON."""
    _, declared = _declared(name, application)
    show_json({spec.name: topology.as_document() for spec, topology in declared})


@app.command("check")
def check(
    name: ApplicationArgument = None,
    application: AppOption = None,
    management: ManagementOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the declared topology with the brokers, and change nothing; exit with 1 if they differ."""
    lines = _run(name, application, management, create=False)
    _show(lines, as_json=as_json)
    if any(line.presence in (Presence.MISSING, Presence.DIFFERENT) for line in lines):
        raise typer.Exit(ExitCode.REFUSED)


@app.command("apply")
def apply(
    name: ApplicationArgument = None,
    application: AppOption = None,
    management: ManagementOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is missing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create what the brokers lack of the declared topology; exit with 1 if something exists with other arguments."""
    lines = _run(name, application, management, create=not dry_run)
    _show(lines, as_json=as_json)
    failed = (Presence.DIFFERENT,) if dry_run else (Presence.DIFFERENT, Presence.MISSING)
    if any(line.presence in failed for line in lines):
        print_status(
            "an exchange or a queue with other arguments is never changed: delete it when it is empty, or "
            "change the declaration"
        )
        raise typer.Exit(ExitCode.REFUSED)


def _declared(
    name: str | None, application: str | None
) -> tuple[Holdfast, list[tuple[BrokerSpec, Topology]]]:
    target = Target(application_reference(name, application))
    if not target.is_application:
        raise ConfigError(f"a topology is declared in the application; {APP_HINT}")
    hold = resolve(target.application, None)
    brokers = hold.runtime.registry.brokers.values()
    declared = [(spec, spec.topology) for spec in brokers if spec.topology is not None]
    if not declared:
        raise ConfigError(
            "the application declares no topology; give one with hold.broker(..., topology=...)"
        )
    return hold, declared


def _run(name: str | None, application: str | None, management: str | None, *, create: bool) -> list[_Line]:
    hold, declared = _declared(name, application)

    async def run_all() -> list[_Line]:
        lines = []
        for spec, topology in declared:
            parts = await _compare(hold, spec, topology, management=management, create=create)
            lines += [_Line(spec.name, *part) for part in parts]
        return lines

    return asyncio.run(run_all())


async def _compare(
    hold: Holdfast, spec: BrokerSpec, topology: Topology, *, management: str | None, create: bool
) -> Sequence[TopologyPart]:
    client = None if hold.runtime.open_broker is None else hold.runtime.open_broker(spec)
    if not isinstance(client, TopologyBroker):
        raise ConfigError(f"broker {spec.name!r} has no exchanges and queues; only RabbitMQ has a topology")
    try:
        if create:
            return await client.apply_topology(topology, management=management)
        return await client.check_topology(topology, management=management)
    finally:
        await client.close()


def _show(lines: Sequence[_Line], *, as_json: bool) -> None:
    if as_json:
        show_json([line._asdict() for line in lines])
    else:
        show_table(COLUMNS, lines)
