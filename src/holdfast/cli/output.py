"""How answers look: a table on a terminal, lines of tab-separated text in a pipe, JSON on request."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from holdfast.core.redaction import redact

JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]

NOTHING = "-"


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Show *rows*; in a pipe without a heading, so that each line is one thing."""
    texts = [[plain(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(columns, texts)
    else:
        for row in texts:
            typer.echo("\t".join(row))


def show_fields(fields: Mapping[str, object]) -> None:
    """Show one name and one value per line."""
    if not sys.stdout.isatty():
        show_table((), list(fields.items()))
        return
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        typer.echo(f"{name:<{width}}  {plain(value)}")


def show_title(title: str) -> None:
    """Begin a part of an answer."""
    typer.echo(f"\n{title}")


def show_json(value: object) -> None:
    """Show *value* for machines: names in snake_case, instants in ISO 8601, UTC."""
    typer.echo(json.dumps(value, indent=2, default=_json))


def plain(value: object) -> str:
    """Write a value on one line without anything that could move a cursor."""
    match value:
        case None | "":
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case _:
            return " ".join(redact(str(value)).split())


def pairs(meta: Mapping[str, Any]) -> str:
    """Write the small print of an event."""
    return " ".join(f"{name}={plain(value)}" for name, value in meta.items())


def _json(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - a pipe or a worker needs none of it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
