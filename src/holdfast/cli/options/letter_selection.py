"""Selects dead letters by the ids of their jobs, or by a filter."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

import typer

from holdfast.app import Holdfast
from holdfast.cli.options.shared_options import with_options_of
from holdfast.cli.results import canonical, full_id
from holdfast.core.dead_letters.letter import LetterFilter, LetterState
from holdfast.core.errors import ConfigError
from holdfast.core.failures.failure import ErrorClass

NOTHING_FOUND = "no dead letter matches the filter; nothing was changed"

IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Ids of failed jobs; or use a filter.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All letters that this step applies to.")]
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
    list[LetterState] | None,
    typer.Option("--state", help="Only letters in this state; repeat for more states."),
]
PlanOption = Annotated[
    str | None, typer.Option("--plan", metavar="TOKEN", help="Only letters that belong to this plan.")
]
EscalatedOption = Annotated[
    bool, typer.Option("--escalated", help="Only letters whose job failed again after a replay.")
]


class Selection(NamedTuple):
    """Dead letters selected by the ids of their jobs, or by a filter."""

    job_ids: tuple[str, ...]
    letter_filter: LetterFilter

    async def with_full_ids(self, hold: Holdfast) -> "Selection":
        """Return the selection with full ids. Raises `JobNotFound` if a prefix matches no id, or several."""
        return self._replace(job_ids=unique_ids([await full_id(hold, job_id) for job_id in self.job_ids]))

    def with_default_states(self, *states: LetterState) -> "Selection":
        """Return the selection restricted to *states*, unless its filter names states."""
        if self.letter_filter.states is not None:
            return self
        return self._replace(letter_filter=replace(self.letter_filter, states=states))

    def as_filter(self) -> LetterFilter:
        """Return the selection as one filter."""
        return (
            replace(self.letter_filter, job_ids=self.job_ids, states=None)
            if self.job_ids
            else self.letter_filter
        )


def build_letter_filter(
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
    """Build the filter from its options."""
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


@with_options_of(build_letter_filter)
def build_selection(
    letter_filter: LetterFilter, *, job_ids: IdsArgument = None, everything: AllOption = False
) -> Selection:
    """Build the selection. Raises `ConfigError` without ids, filter and --all, so that all is always explicit."""
    has_filter = letter_filter != LetterFilter()
    if job_ids and (everything or has_filter):
        raise ConfigError("ids of jobs cannot be combined with a filter or --all")
    if not job_ids and not everything and not has_filter:
        raise ConfigError(
            f"no dead letters are selected: give the ids of jobs, or any of {_filter_options()}, or --all"
        )
    return Selection(unique_ids(job_ids or ()), letter_filter)


def _filter_options() -> str:
    """List the filter options for an error message."""
    *names, last = (
        f"--{name.replace('_', '-')}" for name in inspect.signature(build_letter_filter).parameters
    )
    return f"{', '.join(names)} or {last}"


def unique_ids(job_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the ids as they are stored, without duplicates."""
    return tuple(dict.fromkeys(map(canonical, job_ids)))
