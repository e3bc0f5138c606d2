"""Which dead letters a command is about: some by their jobs' ids, or all that a filter finds."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

import typer

from holdfast.cli.answers import canonical, full_id
from holdfast.cli.taking import taking
from holdfast.core.errors import ConfigError
from holdfast.core.failures import ErrorClass
from holdfast.core.letters import LetterFilter, LetterState
from holdfast.face import Holdfast

NOTHING_FOUND = "no letter is as the filter says; nothing was done"

IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="The ids of jobs that failed; else a filter.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Every letter that waits for this step.")]
NameOption = Annotated[str | None, typer.Option("--name", help="Only letters of jobs with this name.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only letters of this queue.")]
OwnerOption = Annotated[str | None, typer.Option("--owner", help="Only letters of this owner.")]
ClassOption = Annotated[
    ErrorClass | None, typer.Option("--error-class", metavar="CLASS", help="Only failures of this class.")
]
FingerprintOption = Annotated[
    str | None, typer.Option("--fingerprint", metavar="TEXT", help="Only letters of this group.")
]
StageOption = Annotated[str | None, typer.Option("--stage", help="Only failures in this stage.")]
StatesOption = Annotated[
    list[LetterState] | None, typer.Option("--state", help="Only letters in this state, or in these.")
]
PlanOption = Annotated[
    str | None, typer.Option("--plan", metavar="TOKEN", help="Only letters that belong to this plan.")
]
EscalatedOption = Annotated[bool, typer.Option("--escalated", help="Only what a replay did not help.")]


class Selection(NamedTuple):
    """Some letters by their jobs' ids, or all that a filter finds."""

    job_ids: tuple[str, ...]
    wanted: LetterFilter

    async def with_full_ids(self, hold: Holdfast) -> "Selection":
        """Give the same with whole ids. Raises `JobNotFound` if one is the beginning of no id, or of several."""
        return self._replace(job_ids=once([await full_id(hold, job_id) for job_id in self.job_ids]))

    def usually(self, *states: LetterState) -> "Selection":
        """Mean letters in one of *states*, if a filter says nothing about it."""
        if self.wanted.states is not None:
            return self
        return self._replace(wanted=replace(self.wanted, states=states))

    def as_filter(self) -> LetterFilter:
        """Give one filter for all that is meant."""
        return replace(self.wanted, job_ids=self.job_ids, states=None) if self.job_ids else self.wanted


def narrowed(
    *,
    name: NameOption = None,
    queue: QueueOption = None,
    owner: OwnerOption = None,
    error_class: ClassOption = None,
    fingerprint: FingerprintOption = None,
    stage: StageOption = None,
    state: StatesOption = None,
    plan: PlanOption = None,
    escalated: EscalatedOption = False,
) -> LetterFilter:
    """Give the filter that these options make."""
    return LetterFilter(
        name=name,
        queue=queue,
        owner=owner,
        error_class=error_class,
        fingerprint=fingerprint,
        stage=stage,
        states=tuple(state) if state else None,
        plan=plan,
        escalated=escalated or None,
    )


@taking(narrowed)
def selected(
    wanted: LetterFilter, *, job_ids: IdsArgument = None, everything: AllOption = False
) -> Selection:
    """Give what is meant; nobody means all letters without saying so. Raises `ConfigError`."""
    is_narrowed = wanted != LetterFilter()
    if job_ids and (everything or is_narrowed):
        raise ConfigError("ids of jobs, and a filter or --all, exclude each other; give one of them")
    if not job_ids and not everything and not is_narrowed:
        raise ConfigError(f"no letter is named: give the ids of jobs, or any of {_narrowing()}, or --all")
    return Selection(once(job_ids or ()), wanted)


def _narrowing() -> str:
    """Name the options that make a filter."""
    *names, last = (f"--{name.replace('_', '-')}" for name in inspect.signature(narrowed).parameters)
    return f"{', '.join(names)} or {last}"


def once(job_ids: Sequence[str]) -> tuple[str, ...]:
    """Give ids as they are stored, each once."""
    return tuple(dict.fromkeys(map(canonical, job_ids)))
