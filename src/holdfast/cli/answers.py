"""What became of each thing that a command was asked to do: one that cannot be does not keep the others from it."""

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import typer

from holdfast.cli.exits import ExitCode, say
from holdfast.cli.output import show_json
from holdfast.cli.tables import Column, Room, show_table
from holdfast.core.errors import JobNotFound
from holdfast.face import Holdfast

OUTCOME = (Column("id"), Column("outcome", Room.FOLDED))


class Answer(NamedTuple):
    """What became of one job, or of its dead letter."""

    id: str
    done: bool
    detail: str


def tell(answers: Sequence[Answer], *, as_json: bool) -> None:
    """Tell what was done, and on stderr what was not; that is exit code 1."""
    if as_json:
        show_json([answer._asdict() for answer in answers])
    elif done := [(answer.id, answer.detail) for answer in answers if answer.done]:
        show_table(OUTCOME, done)
    refused = [answer for answer in answers if not answer.done]
    for answer in refused:
        say(about(answer.id, answer.detail))
    if refused:
        raise typer.Exit(ExitCode.REFUSED)


def about(job_id: str, detail: str) -> str:
    """Have a line name the job that it is about."""
    return detail if job_id in detail else f"job {job_id}: {detail}"


def is_id(text: str) -> bool:
    """Tell whether it could be the id of a job."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def canonical(job_id: str) -> str:
    """Spell an id as it is stored; what is none is left to the store, which then finds no such job."""
    return str(UUID(job_id)) if is_id(job_id) else job_id


CANDIDATES = 5
"""How many jobs are named where the beginning of an id means several."""

_BEGINNING = re.compile("[0-9a-f]{1,32}")


def id_or_beginning(text: str) -> str:
    """Read the id of a job, or the beginning of one."""
    if not _BEGINNING.fullmatch(text.replace("-", "").lower()):
        raise typer.BadParameter(f"{text!r} is neither a job's id, which is a UUID, nor the beginning of one")
    return text


async def full_id(hold: Holdfast, text: str) -> str:
    """Give the id that *text* is, or begins. Raises `JobNotFound` if that is no job's, or several jobs'."""
    digits = text.replace("-", "").lower()
    if is_id(text) or not _BEGINNING.fullmatch(digits):
        return canonical(text)
    low, high = (str(UUID(digits.ljust(32, filler))) for filler in "0f")
    found = await hold.parts.store.ids_between(low, high, limit=CANDIDATES + 1)
    match found:
        case [job_id]:
            return job_id
        case []:
            raise JobNotFound(f"there is no job whose id begins with {text!r}")
        case _:
            more = ", …" if len(found) > CANDIDATES else ""
            named = ", ".join(found[:CANDIDATES])
            raise JobNotFound(f"several ids begin with {text!r}: {named}{more}; give more of it")
