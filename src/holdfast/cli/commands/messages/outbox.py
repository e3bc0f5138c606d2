"""`holdfast outbox`: list, show, retry and skip messages, and unblock routes."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast.app import Holdfast
from holdfast.cli.exit_codes import print_status
from holdfast.cli.options.app_loader import AppOption, UrlOption, resolve
from holdfast.cli.results import ItemResult, report_results
from holdfast.cli.session import ActorOption, run_with_store
from holdfast.cli.views import outbox as view
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.core.errors import ConfigError, MessageNotFound
from holdfast.core.messages.outbox import BlockedRoute, MessageFilter, MessageStatus, OutboxMessage, outbox_id

PAGE = 500
"""Messages that are read or changed at once."""

app = typer.Typer(no_args_is_help=True, help="List, show, retry and skip messages of the outbox.")

IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The messages' ids.")]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only messages of this type.")]
AllFailedOption = Annotated[
    bool, typer.Option("--all-failed", help="All failed messages, instead of the given ids.")
]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="WHY", help="The reason; it is noted with the message.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
]

Change = Callable[[Holdfast, Sequence[str]], Coroutine[Any, Any, list[str]]]


@app.command("list")
def list_messages(
    *,
    status: Annotated[
        MessageStatus | None, typer.Option("--status", help="Only messages in this state.")
    ] = None,
    message_type: TypeOption = None,
    aggregate: Annotated[
        str | None, typer.Option("--aggregate", help="Only messages of the aggregate with this id.")
    ] = None,
    held: Annotated[
        bool, typer.Option("--held", help="Only messages that wait for a route or an earlier message.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of rows.")] = 50,
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only messages older than this one.")
    ] = None,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List messages of the outbox, the newest first."""

    async def operation(hold: Holdfast) -> tuple[list[OutboxMessage], datetime]:
        message_filter = MessageFilter(
            status,
            message_type,
            aggregate_id=aggregate,
            held=True if held else None,
            limit=limit + 1,  # one more shows whether there are more
            before=before,
        )
        return await hold.outbox.list(message_filter), await hold.database.now()

    found, now = run_with_store(resolve(application, url), operation)
    shown = found[:limit]
    if as_json:
        show_json([view.as_json(message, with_payload=False) for message in shown])
    else:
        view.show_list(shown, now)
    if len(found) > limit:
        print_status(f"{limit} shown, there are more: --limit N, or --before {shown[-1].id}")


@app.command("show")
def show(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's id.")],
    with_payload: Annotated[bool, typer.Option("--payload", help="Show its payload and headers.")] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a message with its error and what it waits for."""
    message = run_with_store(resolve(application, url), lambda hold: hold.outbox.show(message_id))
    if as_json:
        show_json(view.as_json(message, with_payload=with_payload))
    else:
        view.show(message, with_payload=with_payload)


@app.command("retry")
def retry(
    message_ids: IdsArgument = None,
    *,
    all_failed: AllFailedOption = False,
    message_type: TypeOption = None,
    actor: ActorOption,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish failed messages again, with fresh attempts, and close their dead letters; what waits behind them follows."""
    _ensure_selection(message_ids, message_type, all_failed=all_failed)

    async def operation(hold: Holdfast) -> list[ItemResult]:
        ids = await _selected(hold, message_ids, message_type)
        if dry_run:
            return await _preview(hold, ids, (MessageStatus.FAILED,), "would be retried")
        return await _change(
            hold, ids, lambda page: hold.outbox.retry(page, actor=actor, reason=reason), "retried"
        )

    report_results(run_with_store(resolve(application, url), operation), as_json=as_json)


@app.command("skip")
def skip(
    message_ids: IdsArgument = None,
    *,
    all_failed: AllFailedOption = False,
    message_type: TypeOption = None,
    actor: ActorOption,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up publishing messages and discard their dead letters, so that what waits behind them goes on."""
    _ensure_selection(message_ids, message_type, all_failed=all_failed)

    async def operation(hold: Holdfast) -> list[ItemResult]:
        ids = await _selected(hold, message_ids, message_type)
        if dry_run:
            unpublished = (MessageStatus.PENDING, MessageStatus.FAILED)
            return await _preview(hold, ids, unpublished, "would be skipped")
        return await _change(
            hold, ids, lambda page: hold.outbox.skip(page, actor=actor, reason=reason), "skipped"
        )

    report_results(run_with_store(resolve(application, url), operation), as_json=as_json)


@app.command("routes")
def routes(
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the routes that a broker refuses, with the number of messages that are held for each."""

    async def operation(hold: Holdfast) -> tuple[list[BlockedRoute], datetime]:
        return await hold.outbox.routes(), await hold.database.now()

    found, now = run_with_store(resolve(application, url), operation)
    if as_json:
        show_json([route._asdict() for route in found])
    else:
        view.show_routes(found, now)


@app.command("unblock")
def unblock(
    route: Annotated[
        str, typer.Argument(metavar="ROUTE", help="The route, as `holdfast outbox routes` prints it.")
    ],
    *,
    actor: ActorOption,
    reason: Annotated[str, typer.Option("--reason", metavar="WHY", help="The reason; it is logged.")] = "",
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish the messages of a blocked route now, instead of after its next probe."""

    async def operation(hold: Holdfast) -> ItemResult:
        if dry_run:
            routes = {each.route: each.held for each in await hold.outbox.routes()}
            held = routes.get(route)
        else:
            held = await hold.outbox.unblock(route, actor=actor, reason=reason)
        if held is None:
            return ItemResult(route, done=False, detail=f"route {route} is not blocked")
        detail = "would be unblocked" if dry_run else "unblocked"
        return ItemResult(route, done=True, detail=f"{detail}, with {held} messages")

    report_results([run_with_store(resolve(application, url), operation)], as_json=as_json)


def _ensure_selection(message_ids: list[str] | None, message_type: str | None, *, all_failed: bool) -> None:
    if all_failed == bool(message_ids) or (message_type is not None and not all_failed):
        raise ConfigError("give the ids of messages, or --all-failed, which --type narrows")


async def _selected(hold: Holdfast, message_ids: list[str] | None, message_type: str | None) -> list[str]:
    """Return the given ids, or those of all failed messages."""
    if message_ids:
        return [outbox_id(message_id) for message_id in message_ids]
    failed, found = MessageFilter(MessageStatus.FAILED, message_type, limit=PAGE), []
    while page := await hold.outbox.list(failed):
        found += [message.id for message in page]
        failed = replace(failed, before=page[-1].id)
    return found[::-1]  # the oldest first: they are published in this order


async def _preview(
    hold: Holdfast, ids: Sequence[str], statuses: Sequence[MessageStatus], detail: str
) -> list[ItemResult]:
    results = []
    for message_id in ids:
        try:
            message = await hold.outbox.show(message_id)
        except MessageNotFound as error:
            results.append(ItemResult(message_id, done=False, detail=str(error)))
            continue
        done = message.status in statuses
        results.append(ItemResult(message_id, done, detail if done else _refusal(message)))
    return results


async def _change(
    hold: Holdfast,
    ids: Sequence[str],
    change: Callable[[Sequence[str]], Coroutine[Any, Any, list[str]]],
    detail: str,
) -> list[ItemResult]:
    """Change messages, a page at a time; say of the others why they were not changed."""
    results = []
    for first in range(0, len(ids), PAGE):
        page = ids[first : first + PAGE]
        changed = set(await change(page))
        results += [ItemResult(each, done=True, detail=detail) for each in page if each in changed]
        results += await _preview(hold, [each for each in page if each not in changed], (), "")
    return results


def _refusal(message: OutboxMessage) -> str:
    return f"message {message.id} is {message.status}, so nothing was changed"
