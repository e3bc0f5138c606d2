"""The result for each job or letter of a command: a failure of one does not stop the others."""

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import typer

from holdfast.app import Holdfast
from holdfast.cli.exit_codes import ExitCode, print_status
from holdfast.cli.views.output import show_json
from holdfast.cli.views.table import Column, Fit, show_table
from holdfast.core.errors import JobNotFound

OUTCOME = (Column("id"), Column("outcome", Fit.FOLDED))


class ItemResult(NamedTuple):
    """The result for one job, or for its dead letter."""

    id: str
    done: bool
    detail: str


def report_results(results: Sequence[ItemResult], *, as_json: bool) -> None:
    """Print what was done, and on stderr what was refused; exit with 1 if anything was refused."""
    if as_json:
        show_json([result._asdict() for result in results])
    elif done := [(result.id, result.detail) for result in results if result.done]:
        show_table(OUTCOME, done)
    refused = [result for result in results if not result.done]
    for result in refused:
        print_status(with_job_id(result.id, result.detail))
    if refused:
        raise typer.Exit(ExitCode.REFUSED)


def with_job_id(job_id: str, detail: str) -> str:
    """Return *detail* with the id of the job, if it does not contain it already."""
    return detail if job_id in detail else f"job {job_id}: {detail}"


def is_id(text: str) -> bool:
    """Return whether *text* has the form of a job id."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def canonical(job_id: str) -> str:
    """Return an id as it is stored; other text is returned unchanged, and the store finds no such job."""
    return str(UUID(job_id)) if is_id(job_id) else job_id


CANDIDATES = 5
"""Number of ids that an error lists if a prefix is ambiguous."""

_BEGINNING = re.compile("[0-9a-f]{1,32}")


def id_or_beginning(text: str) -> str:
    """Read the id of a job, or the beginning of one."""
    if not _BEGINNING.fullmatch(text.replace("-", "").lower()):
        raise typer.BadParameter(f"{text!r} is neither a job's id, which is a UUID, nor the beginning of one")
    return text


async def full_id(hold: Holdfast, text: str) -> str:
    """Return the id that starts with *text*. Raises `JobNotFound` if no id does, or more than one."""
    if is_id(text) or not _BEGINNING.fullmatch(text.replace("-", "").lower()):
        return canonical(text)
    found = await hold.jobs.ids_starting_with(text, limit=CANDIDATES + 1)
    match found:
        case [job_id]:
            return job_id
        case []:
            raise JobNotFound(f"there is no job whose id begins with {text!r}")
        case _:
            more = ", …" if len(found) > CANDIDATES else ""
            named = ", ".join(found[:CANDIDATES])
            raise JobNotFound(f"several ids begin with {text!r}: {named}{more}; give more of it")
