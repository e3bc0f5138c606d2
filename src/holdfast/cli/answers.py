"""What became of each thing that a command was asked to do: one that cannot be does not keep the others from it."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import typer

from holdfast.cli.exits import ExitCode, say
from holdfast.cli.output import show_json
from holdfast.cli.tables import Column, Room, show_table

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


def as_id(text: str) -> str:
    """Read an id; both stores then compare the same spelling."""
    if not is_id(text):
        raise typer.BadParameter(f"{text!r} is not a job's id, which is a UUID")
    return canonical(text)
