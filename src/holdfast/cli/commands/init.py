"""`holdfast init`: a small project to start from, which runs as it is."""

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata, resources
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.exit_codes import ExitCode, print_status

SUFFIX = ".txt"
"""Suffix of the templates, so that tools do not treat them as code of this package."""


OURSELVES = "{holdfast}"
"""Placeholder for this package in the requirements of the project."""


def run(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder of the project; the default is the current one."),
    ] = Path(),
) -> None:
    """Create a small project with a job, a stage and a test; existing files are not overwritten."""
    files = {folder / name: text for name, text in starter().items()}
    taken = [path for path in files if path.exists()]
    if taken:
        print_status(
            f"{taken[0]} already exists; nothing was written; give another folder: holdfast init FOLDER"
        )
        raise typer.Exit(ExitCode.REFUSED)
    try:
        _write(files)
    except OSError as error:
        print_status(f"cannot write {error.filename}; no files were left behind: {error.strerror}")
        raise typer.Exit(ExitCode.REFUSED) from None
    for path in files:
        typer.echo(path)
    print_status(f"{folder / 'README.md'} has the next three commands")


def starter() -> dict[str, str]:
    """Return the files of the project, by their names."""
    files = resources.files("holdfast.cli").joinpath("starter").iterdir()
    found = {
        file.name.removesuffix(SUFFIX): file.read_text(encoding="utf-8")
        for file in sorted(files, key=lambda file: file.name)
        if file.name.endswith(SUFFIX)
    }
    return {name: text.replace(OURSELVES, installed_from()) for name, text in found.items()}


def installed_from() -> str:
    """Return the requirement that installs this package from its own source: an index, a checkout, a wheel."""
    origin = metadata.distribution("holdfast").read_text("direct_url.json")
    return "holdfast" if origin is None else f"holdfast @ {json.loads(origin)['url']}"


def _write(files: Mapping[Path, str]) -> None:
    """Write all *files* or none; a file that another process created meanwhile is left unchanged."""
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise
