"""`holdfast providers`: how outside services fare, and what an operator lays down about them."""

from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, Protocol

import typer

from holdfast.cli import providers_view
from holdfast.cli.asking import ActorOption, asked
from holdfast.cli.output import JsonOption, show_json
from holdfast.cli.providers_view import Listed, Whole
from holdfast.cli.tables import Column, Room, show_table
from holdfast.cli.taking import taking
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


class _Order(NamedTuple):
    """What an operator says about a provider, and where."""

    name: NameArgument
    actor: ActorOption
    reason: ReasonOption = ""
    application: AppOption = None
    url: UrlOption = None
    as_json: JsonOption = False


class _Verb(Protocol):
    """A verb of `hold.providers` that somebody answers for."""

    def __call__(self, them: Providers, name: str, /, *, actor: str, reason: str) -> Awaitable[None]: ...


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
@taking(_Order)
def open_provider(order: _Order) -> None:
    """Have no call made to a provider until it is resumed, and its backup take over."""
    _lay_down(order, Providers.open, _no_call)


@app.command("close")
@taking(_Order)
def close(order: _Order) -> None:
    """Have every call made to a provider until it is resumed, whatever its breaker says."""
    _lay_down(order, Providers.close, _every_call)


@app.command("observe")
@taking(_Order)
def observe(order: _Order) -> None:
    """Have every call made to a provider until it is resumed, and only tell what its breaker would do."""
    _lay_down(order, Providers.observe, _every_call)


@app.command("pause")
@taking(_Order)
def pause(order: _Order) -> None:
    """Have no call made to a provider until it is resumed, nor to its backup: jobs wait."""
    _lay_down(order, Providers.pause, _all_wait)


@app.command("resume")
@taking(_Order)
def resume(order: _Order) -> None:
    """Lift what was laid down about a provider, and let its breaker decide again."""
    _lay_down(order, Providers.resume, _breaker_decides)


@app.command("probe")
@taking(_Order)
def probe(order: _Order) -> None:
    """Let one job through to a provider that is shut, as a trial ahead of time."""
    _lay_down(order, Providers.probe, _one_trial)


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


def _lay_down(order: _Order, verb: _Verb, meaning: Callable[[ProviderStatus], str]) -> None:
    """Lay an order down, look what has come of it, and tell that."""

    async def ask(hold: Holdfast) -> ProviderStatus:
        await verb(hold.providers, order.name, actor=order.actor, reason=order.reason)
        return await hold.providers.show(order.name)

    status = asked(chosen(order.application, order.url), ask)
    if order.as_json:
        show_json({"provider": order.name, "state": status.state, "detail": meaning(status)})
    else:
        show_table(OUTCOME, [(order.name, meaning(status))])


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
