"""`holdfast providers`: how outside services fare, and what an operator lays down about them."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, NamedTuple

import typer

from holdfast.cli import providers_view
from holdfast.cli.asking import ActorOption, asked
from holdfast.cli.output import JsonOption, show_json
from holdfast.cli.providers_view import Listed, Whole
from holdfast.cli.tables import Column, Room, show_table
from holdfast.cli.target import AppOption, UrlOption, chosen
from holdfast.core.providers import provider_of, shown
from holdfast.face import Holdfast, Providers, ProviderStatus

EVENTS = 20
"""How much of its history a provider is shown with."""

app = typer.Typer(no_args_is_help=True, help="Look at providers, stop calls to them, let them go on.")

OUTCOME = (Column("provider"), Column("outcome", Room.FOLDED))

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The provider's name.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="WHY", help="Why; the list and the history show it.")
]


class _Answer(NamedTuple):
    """What a provider's state is after an order, and what that means."""

    provider: str
    state: str
    detail: str


@app.command("list")
def list_providers(
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List providers with their state, and how many jobs they hold."""
    found = asked(chosen(application, url), _listed)
    if as_json:
        show_json([providers_view.as_listed(status) for status in found.statuses])
    else:
        providers_view.show_list(found)


@app.command("show")
def show(
    name: NameArgument,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a provider with its limits, who is held by it, and what happened to it."""
    found = asked(chosen(application, url), lambda hold: _whole(hold, name))
    if as_json:
        show_json(providers_view.as_json(found))
    else:
        providers_view.show(found)


@app.command("open")
def open_provider(
    name: NameArgument,
    *,
    actor: ActorOption,
    reason: ReasonOption = "",
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have no call made to a provider until it is resumed, and its backup take over."""
    order = _ordered(name, lambda them: them.open(name, actor=actor, reason=reason), _no_call)
    _tell(asked(chosen(application, url), order), as_json=as_json)


@app.command("close")
def close(
    name: NameArgument,
    *,
    actor: ActorOption,
    reason: ReasonOption = "",
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have every call made to a provider until it is resumed, whatever its breaker says."""
    order = _ordered(name, lambda them: them.close(name, actor=actor, reason=reason), _every_call)
    _tell(asked(chosen(application, url), order), as_json=as_json)


@app.command("observe")
def observe(
    name: NameArgument,
    *,
    actor: ActorOption,
    reason: ReasonOption = "",
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have every call made to a provider until it is resumed, and only tell what its breaker would do."""
    order = _ordered(name, lambda them: them.observe(name, actor=actor, reason=reason), _every_call)
    _tell(asked(chosen(application, url), order), as_json=as_json)


@app.command("pause")
def pause(
    name: NameArgument,
    *,
    actor: ActorOption,
    reason: ReasonOption = "",
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have no call made to a provider until it is resumed, nor to its backup: jobs wait."""
    order = _ordered(name, lambda them: them.pause(name, actor=actor, reason=reason), _all_wait)
    _tell(asked(chosen(application, url), order), as_json=as_json)


@app.command("resume")
def resume(
    name: NameArgument,
    *,
    actor: ActorOption,
    reason: ReasonOption = "",
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lift what was laid down about a provider, and let its breaker decide again."""
    order = _ordered(name, lambda them: them.resume(name, actor=actor, reason=reason), _breaker_decides)
    _tell(asked(chosen(application, url), order), as_json=as_json)


@app.command("probe")
def probe(
    name: NameArgument,
    *,
    actor: ActorOption,
    reason: ReasonOption = "",
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let one job through to a provider that is shut, as a trial ahead of time."""
    order = _ordered(name, lambda them: them.probe(name, actor=actor, reason=reason), _one_trial)
    _tell(asked(chosen(application, url), order), as_json=as_json)


async def _listed(hold: Holdfast) -> Listed:
    statuses = await hold.providers.list()
    now = await hold.parts.store.now()
    return Listed(statuses, now)


async def _whole(hold: Holdfast, name: str) -> Whole:
    status = await hold.providers.show(name)
    held = await hold.parts.store.held()
    now = await hold.parts.store.now()
    return Whole(
        status,
        hold.parts.registry.providers.get(name),
        {shown(holder): jobs for holder, jobs in sorted(held.items()) if provider_of(holder) == name},
        await hold.providers.events(name, limit=EVENTS),
        now,
    )


def _ordered(
    name: str, order: Callable[[Providers], Awaitable[None]], meaning: Callable[[ProviderStatus], str]
) -> Callable[[Holdfast], Coroutine[Any, Any, _Answer]]:
    """Lay an order down, and look what has come of it."""

    async def ask(hold: Holdfast) -> _Answer:
        await order(hold.providers)
        status = await hold.providers.show(name)
        return _Answer(name, status.state, meaning(status))

    return ask


def _no_call(status: ProviderStatus) -> str:
    instead = "its jobs are held" if status.backup is None else f"{status.backup} is called instead"
    return f"{status.state}: {instead} until it is resumed"


def _every_call(status: ProviderStatus) -> str:
    return f"{status.state}: every call is made until it is resumed"


def _all_wait(status: ProviderStatus) -> str:
    return f"{status.state}: its jobs are held until it is resumed"


def _breaker_decides(status: ProviderStatus) -> str:
    return f"resumed: its breaker decides again, and is {status.state}"


def _one_trial(status: ProviderStatus) -> str:
    return f"{status.state}: one job is let through as a trial"


def _tell(answer: _Answer, *, as_json: bool) -> None:
    if as_json:
        show_json(answer._asdict())
    else:
        show_table(OUTCOME, [(answer.provider, answer.detail)])
