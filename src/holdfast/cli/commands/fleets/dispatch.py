"""`holdfast dispatch`: dispatches jobs to Celery and arq workers until a signal stops it."""

from dataclasses import replace

import typer

from holdfast.cli.options.app_loader import (
    ApplicationArgument,
    AppOption,
    UrlOption,
    application_reference,
    resolve_for_worker,
)
from holdfast.cli.options.logging_options import LogFormatOption, LogLevelOption, logger_for
from holdfast.cli.options.process_options import HealthHostOption, HealthPortOption, health_address
from holdfast.cli.process.worker_process import serve
from holdfast.core.errors import ConfigError


def run(
    name: ApplicationArgument = None,
    *,
    application: AppOption = None,
    url: UrlOption = None,
    health_port: HealthPortOption = None,
    health_host: HealthHostOption = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Dispatch jobs to the Celery and arq workers that run them until SIGTERM or SIGINT, and run none here."""
    hold = resolve_for_worker(application_reference(name, application), url)
    hold.settings.ensure_usable()
    transports = hold.runtime.registry.transports
    if not transports:
        raise ConfigError(
            "no queue of the application has a transport, so there is nothing to dispatch; declare one with "
            "hold.queue(..., transport=...)"
        )
    slots = sum(transport.slots for transport in transports.values())
    options = replace(hold.settings.worker_options, queues=tuple(transports), slots=slots)
    logger = logger_for(hold, log_level, log_format)
    health = health_address(hold.settings, health_host, health_port)
    raise typer.Exit(serve(hold, options, logger, health=health))
