"""Prints results: aligned text on a terminal, tab-separated text in a pipe, JSON on request."""

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from holdfast.core.redaction import printable

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

EMPTY = "-"


def show_fields(fields: Mapping[str, object]) -> None:
    """Print one name and one value per line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        typer.echo(f"{name:<{width}}  {plain(value)}" if sys.stdout.isatty() else f"{name}\t{plain(value)}")


def show_title(title: str) -> None:
    """Print the heading of a section."""
    typer.echo(f"\n{title}")


def show_json(value: object) -> None:
    """Print *value* as JSON: names in snake_case, instants in ISO 8601, UTC."""
    typer.echo(json.dumps(value, indent=2, default=_json))


def plain(value: object) -> str:
    """Format a value on one line, without control characters."""
    match value:
        case None | "":
            return EMPTY
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case _:
            return " ".join(printable(str(value)).split())


def pairs(meta: Mapping[str, Any]) -> str:
    """Format the details of an event."""
    return " ".join(f"{name}={plain(value)}" for name, value in meta.items())


def _json(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} has no place in JSON")
