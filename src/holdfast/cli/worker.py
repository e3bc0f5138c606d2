"""`holdfast worker`: a process that runs jobs until it is told to stop."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.lengths import length, positive_length
from holdfast.cli.logging_options import LogFormat, LogLevelOption, journal_of
from holdfast.cli.processes import supervise
from holdfast.cli.serving import Address, SlotsOption, serve
from holdfast.cli.target import ApplicationArgument, AppOption, UrlOption, named_once, served
from holdfast.cli.weights import QueueOption, queues
from holdfast.config import Settings
from holdfast.core.errors import ConfigError


def run(
    name: ApplicationArgument = None,
    *,
    application: AppOption = None,
    url: UrlOption = None,
    slots: SlotsOption = None,
    queue: QueueOption = None,
    lease: Annotated[
        timedelta | None,
        typer.Option(
            "--lease",
            parser=positive_length,
            metavar="TIME",
            help="How long a claim lasts.",
            show_default="HOLDFAST_WORKER_LEASE_TTL_SEC, else 90 s",
        ),
    ] = None,
    grace: Annotated[
        timedelta | None,
        typer.Option(
            "--grace",
            parser=length,
            metavar="TIME",
            help="How long running jobs may go on at the end.",
            show_default="HOLDFAST_WORKER_GRACE_SEC, else 30 s",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option("--processes", min=1, max=1_000, help="How many processes to run, each with its slots."),
    ] = 1,
    health_port: Annotated[
        int | None,
        typer.Option(
            "--health-port",
            min=0,
            max=65_535,
            help="Answer /live, /ready and /metrics on this port.",
            show_default="HOLDFAST_WORKER_HEALTH_PORT, else none",
        ),
    ] = None,
    health_host: Annotated[
        str | None,
        typer.Option(
            "--health-host",
            help="Open the health port on this address.",
            show_default="HOLDFAST_WORKER_HEALTH_HOST, else 127.0.0.1",
        ),
    ] = None,
    seat: Annotated[
        Path | None,
        typer.Option("--seat", hidden=True, help="Given by --processes to the processes it starts."),
    ] = None,
    log_level: LogLevelOption = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--log-format",
            case_sensitive=False,
            help="What a log line looks like.",
            show_default="HOLDFAST_LOG_FORMAT, else json",
        ),
    ] = None,
) -> None:
    """Run jobs until told to stop by a signal."""
    hold = served(named_once(name, application), url)
    hold.settings.ensure_usable()
    usual = hold.settings.worker_options
    options = replace(
        usual,
        slots=slots or usual.slots,
        queues=queues(queue) if queue else usual.queues,
        lease=lease or usual.lease,
        grace=usual.grace if grace is None else grace,
    )
    journal = journal_of(hold, log_level, log_format)
    health = _health(hold.settings, health_host, health_port)
    if processes > 1 and seat is None:
        raise typer.Exit(supervise(processes, journal, health=health))
    raise typer.Exit(serve(hold, options, journal, health=seat or health))


def _health(settings: Settings, host: str | None, port: int | None) -> Address | None:
    chosen = settings.worker_health_port if port is None else port
    if chosen is None and host is not None:
        raise ConfigError(f"--health-host {host} opens nothing without a port; give --health-port, too")
    return None if chosen is None else Address(host or settings.worker_health_host, chosen)
