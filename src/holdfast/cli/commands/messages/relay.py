"""`holdfast relay`: publishes the messages of the outbox until a signal stops it."""

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
from holdfast.cli.options.durations import parse_duration
from holdfast.cli.options.logging_options import LogFormatOption, LogLevelOption, logger_for
from holdfast.cli.options.process_options import (
    HealthHostOption,
    HealthPortOption,
    SeatOption,
    health_address,
)
from holdfast.cli.process.supervisor import supervise
from holdfast.cli.process.worker_process import serve_relay
from holdfast.core.errors import ConfigError


def run(
    name: ApplicationArgument = None,
    *,
    application: AppOption = None,
    url: UrlOption = None,
    grace: Annotated[
        timedelta | None,
        typer.Option(
            "--grace",
            parser=parse_duration,
            metavar="TIME",
            help="How long messages in flight may take at shutdown.",
            show_default="HOLDFAST_WORKER_GRACE_SEC, else 30 s",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option("--processes", min=1, max=1_000, help="How many processes to run, each with a relay."),
    ] = 1,
    health_port: HealthPortOption = None,
    health_host: HealthHostOption = None,
    seat: SeatOption = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Publish messages of the outbox until SIGTERM or SIGINT, and run no jobs."""
    hold = resolve_for_worker(application_reference(name, application), url)
    hold.settings.ensure_usable()
    if not hold.runtime.registry.brokers:
        raise ConfigError(
            "the application declares no broker, so there is nothing to publish to; declare one with hold.broker(...)"
        )
    logger = logger_for(hold, log_level, log_format)
    health = health_address(hold.settings, health_host, health_port)
    if processes > 1 and seat is None:
        raise typer.Exit(supervise(processes, logger, health=health))
    wait = hold.settings.worker_options.grace if grace is None else grace
    raise typer.Exit(serve_relay(hold, logger, grace=wait, health=seat or health))
