"""The options of commands that run until a signal: their health port, and their place among several processes."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.process.worker_process import Address
from holdfast.config import Settings
from holdfast.core.errors import ConfigError

HealthPortOption = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=0,
        max=65_535,
        help="Answer /live, /ready and /metrics on this port.",
        show_default="HOLDFAST_WORKER_HEALTH_PORT, else none",
    ),
]
HealthHostOption = Annotated[
    str | None,
    typer.Option(
        "--health-host",
        help="Open the health port on this address.",
        show_default="HOLDFAST_WORKER_HEALTH_HOST, else 127.0.0.1",
    ),
]
SeatOption = Annotated[
    Path | None,
    typer.Option(
        "--seat", hidden=True, help="Internal: set by --processes for the processes that it starts."
    ),
]


def health_address(settings: Settings, host: str | None, port: int | None) -> Address | None:
    """Return where the health port is opened; `None` if it is not. Raises `ConfigError` for a host without a port."""
    port_or_default = settings.worker_health_port if port is None else port
    if port_or_default is None and host is not None:
        raise ConfigError(f"--health-host {host} opens nothing without a port; give --health-port, too")
    return None if port_or_default is None else Address(host or settings.worker_health_host, port_or_default)
