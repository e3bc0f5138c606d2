"""`holdfast worker`: runs jobs until a signal stops it."""

from dataclasses import replace
from datetime import timedelta
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
from holdfast.cli.options.logging_options import LogFormatOption, LogLevelOption, logger_for
from holdfast.cli.options.process_options import (
    HealthHostOption,
    HealthPortOption,
    SeatOption,
    health_address,
)
from holdfast.cli.options.queue_option import QueueOption, queues
from holdfast.cli.process.supervisor import supervise
from holdfast.cli.process.worker_process import SlotsOption, serve


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
    health_port: HealthPortOption = None,
    health_host: HealthHostOption = None,
    seat: SeatOption = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
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
    health = health_address(hold.settings, health_host, health_port)
    if processes > 1 and seat is None:
        raise typer.Exit(supervise(processes, logger, health=health))
    raise typer.Exit(serve(hold, options, logger, health=seat or health))
