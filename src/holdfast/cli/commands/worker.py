"""`holdfast worker`: runs jobs until a signal stops it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options.app_loader import (
    ApplicationArgument,
    AppOption,
    UrlOption,
    application_reference,
    resolve_for_worker,
)
from holdfast.cli.options.durations import parse_duration, parse_positive_duration
from holdfast.cli.options.logging_options import LogFormat, LogLevelOption, logger_for
from holdfast.cli.options.queue_option import QueueOption, queues
from holdfast.cli.process.supervisor import supervise
from holdfast.cli.process.worker_process import Address, SlotsOption, serve
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
            parser=parse_positive_duration,
            metavar="TIME",
            help="How long a silent worker keeps its jobs.",
            show_default="HOLDFAST_WORKER_LEASE_TTL_SEC, else 90 s",
        ),
    ] = None,
    grace: Annotated[
        timedelta | None,
        typer.Option(
            "--grace",
            parser=parse_duration,
            metavar="TIME",
            help="How long running jobs may continue at shutdown.",
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
        typer.Option(
            "--seat", hidden=True, help="Internal: set by --processes for the processes that it starts."
        ),
    ] = None,
    log_level: LogLevelOption = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--log-format",
            case_sensitive=False,
            help="Format of log lines.",
            show_default="HOLDFAST_LOG_FORMAT, else json",
        ),
    ] = None,
) -> None:
    """Run jobs until SIGTERM or SIGINT, then finish or release the running ones."""
    hold = resolve_for_worker(application_reference(name, application), url)
    hold.settings.ensure_usable()
    defaults = hold.settings.worker_options
    options = replace(
        defaults,
        slots=slots or defaults.slots,
        queues=queues(queue) if queue else defaults.queues,
        lease=lease or defaults.lease,
        grace=defaults.grace if grace is None else grace,
    )
    logger = logger_for(hold, log_level, log_format)
    health = _health(hold.settings, health_host, health_port)
    if processes > 1 and seat is None:
        raise typer.Exit(supervise(processes, logger, health=health))
    raise typer.Exit(serve(hold, options, logger, health=seat or health))


def _health(settings: Settings, host: str | None, port: int | None) -> Address | None:
    health_port_or_default = settings.worker_health_port if port is None else port
    if health_port_or_default is None and host is not None:
        raise ConfigError(f"--health-host {host} opens nothing without a port; give --health-port, too")
    return (
        None
        if health_port_or_default is None
        else Address(host or settings.worker_health_host, health_port_or_default)
    )
