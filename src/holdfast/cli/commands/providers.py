"""`holdfast providers`: show providers, and override their breakers."""

from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, Protocol

import typer

from holdfast.app import Holdfast
from holdfast.cli.options.app_loader import AppOption, UrlOption, resolve
from holdfast.cli.options.shared_options import with_options_of
from holdfast.cli.session import ActorOption, run_with_store
from holdfast.cli.views import providers as view
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.cli.views.providers import ProviderDetails, ProviderListing
from holdfast.cli.views.table import Column, Fit, show_table
from holdfast.engine.providers.provider_service import ProviderService, ProviderStatus

EVENTS = 20
"""Number of events that `show` prints."""

app = typer.Typer(no_args_is_help=True, help="List and show providers, and override their breakers.")

OUTCOME = (Column("provider"), Column("outcome", Fit.FOLDED))

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The provider's name.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="WHY", help="The reason; the list and the history show it.")
]


class _OverrideRequest(NamedTuple):
    """The options of a command that overrides a breaker."""

    name: NameArgument
    actor: ActorOption
    reason: ReasonOption = ""
    application: AppOption = None
    url: UrlOption = None
    as_json: JsonOption = False


class _OverrideMethod(Protocol):
    """A method of `hold.providers` that sets or clears an override."""

    def __call__(self, name: str, /, *, actor: str, reason: str) -> Awaitable[None]: ...


@app.command("list")
def list_providers(
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List providers with their state and the number of held jobs."""
    found = run_with_store(resolve(application, url), _read_listing)
    if as_json:
        show_json([view.as_listed(status) for status in found.statuses])
    else:
        view.show_list(found)


@app.command("show")
def show(
    name: NameArgument,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a provider with its limits, its held jobs and its history."""
    found = run_with_store(resolve(application, url), lambda hold: _read_details(hold, name))
    if as_json:
        show_json(view.as_json(found))
    else:
        view.show(found)


@app.command("open")
@with_options_of(_OverrideRequest)
def open_provider(request: _OverrideRequest) -> None:
    """Force the breaker of a provider open: calls go to its backup, or jobs are held, until it is resumed."""
    _apply_override(request, lambda providers: providers.open, _calls_refused)


@app.command("close")
@with_options_of(_OverrideRequest)
def close(request: _OverrideRequest) -> None:
    """Force the breaker of a provider closed: all calls are made until it is resumed."""
    _apply_override(request, lambda providers: providers.close, _calls_allowed)


@app.command("observe")
@with_options_of(_OverrideRequest)
def observe(request: _OverrideRequest) -> None:
    """Only observe the breaker of a provider: all calls are made, and openings are logged, until it is resumed."""
    _apply_override(request, lambda providers: providers.observe, _calls_allowed)


@app.command("pause")
@with_options_of(_OverrideRequest)
def pause(request: _OverrideRequest) -> None:
    """Pause a provider: no calls are made, not even to its backup, and jobs are held, until it is resumed."""
    _apply_override(
        request,
        lambda providers: providers.pause,
        lambda status: f"{status.state}: its jobs are held until it is resumed",
    )


@app.command("resume")
@with_options_of(_OverrideRequest)
def resume(request: _OverrideRequest) -> None:
    """Clear the manual override of a provider, so that its breaker decides again."""
    _apply_override(
        request,
        lambda providers: providers.resume,
        lambda status: f"resumed: its breaker decides again, and is {status.state}",
    )


@app.command("probe")
@with_options_of(_OverrideRequest)
def probe(request: _OverrideRequest) -> None:
    """Request a trial call to a provider whose breaker is open, before its cooldown has passed."""
    _apply_override(
        request,
        lambda providers: providers.probe,
        lambda status: f"{status.state}: one job is let through as a trial",
    )


async def _read_listing(hold: Holdfast) -> ProviderListing:
    return ProviderListing(await hold.providers.list(), await hold.database.now())


async def _read_details(hold: Holdfast, name: str) -> ProviderDetails:
    return ProviderDetails(
        await hold.providers.show(name),
        hold.runtime.registry.providers.get(name),
        await hold.providers.held(name),
        await hold.providers.events(name, limit=EVENTS),
        await hold.database.now(),
    )


def _apply_override(
    request: _OverrideRequest,
    method: Callable[[ProviderService], _OverrideMethod],
    describe: Callable[[ProviderStatus], str],
) -> None:
    """Call *method*, and print the resulting state of the provider."""

    async def operation(hold: Holdfast) -> ProviderStatus:
        await method(hold.providers)(request.name, actor=request.actor, reason=request.reason)
        return await hold.providers.show(request.name)

    status = run_with_store(resolve(request.application, request.url), operation)
    if request.as_json:
        show_json({"provider": request.name, "state": status.state, "detail": describe(status)})
    else:
        show_table(OUTCOME, [(request.name, describe(status))])


def _calls_refused(status: ProviderStatus) -> str:
    instead = "its jobs are held" if status.backup is None else f"{status.backup} is called instead"
    return f"{status.state}: {instead} until it is resumed"


def _calls_allowed(status: ProviderStatus) -> str:
    return f"{status.state}: every call is made until it is resumed"
