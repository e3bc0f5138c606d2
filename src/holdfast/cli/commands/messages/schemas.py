"""`holdfast schemas`: the JSON Schemas of the messages that an application declares."""

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from holdfast.cli.options.app_loader import (
    ApplicationArgument,
    AppOption,
    application_reference,
    resolve,
)
from holdfast.cli.results import ItemResult, report_results
from holdfast.cli.views.output import show_json
from holdfast.core.errors import ConfigError
from holdfast.core.messages.broker_message import VERSION_HEADER
from holdfast.engine.messages.message_type import MessageType


def run(
    name: ApplicationArgument = None,
    *,
    application: AppOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write one file for each type into this folder."),
    ] = None,
) -> None:
    """Print the JSON Schema of each message type, or write them into a folder."""
    reference = application_reference(name, application)
    if reference is None:
        raise ConfigError("give the application that declares the messages, for example app:hold")
    types = resolve(reference, None).runtime.registry.message_types
    if not types:
        raise ConfigError(
            f"{reference} declares no message; decorate a pydantic model with @hold.message(...)"
        )
    schemas = {each: _schema(declared) for each, declared in sorted(types.items())}
    if out is None:
        show_json(schemas)
    else:
        report_results([_write(out, each, schema) for each, schema in schemas.items()], as_json=False)


def _schema(declared: MessageType) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **declared.schema(),
        VERSION_HEADER: declared.version,
    }


def _write(folder: Path, name: str, schema: dict[str, Any]) -> ItemResult:
    """Write a schema; the name of a type may have characters that a file's name cannot have."""
    path = folder / f"{quote(name, safe='')}.schema.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {str(path)!r}: {error.strerror}; give another folder with --out"
        ) from None
    return ItemResult(name, done=True, detail=str(path))
