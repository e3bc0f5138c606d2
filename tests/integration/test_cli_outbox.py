"""`holdfast outbox` and `holdfast schemas`: what waits, what has failed, and what a message looks like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.core.messages.broker_message import Route
from holdfast.core.messages.outbox import after_refusal, published
from holdfast.errors import MessageRefused, RouteRefused
from tests.builders import a_failure, a_message
from tests.contract.steps import LEASE
from tests.integration.cli_process import an_application, apply_schema, holdfast

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.core.messages.outbox import OutboxMessage
    from tests.servers import Prepare

UNKNOWN = "01900000-0000-7000-8000-00000000000a"
ROUTE = Route("rabbitmq", "vstep.exchange", "grading.request")

APPLICATION = """
from pydantic import BaseModel
from holdfast import Holdfast

hold = Holdfast()
hold.broker("local", print)


@hold.message("grading.request", version=2)
class GradingRequest(BaseModel):
    requestId: str


@hold.message("grading/callback")
class Callback(BaseModel):
    status: str
"""


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


async def one_of_each(url: str) -> dict[str, OutboxMessage]:
    """Store a message that is published, one that has failed, one behind it, and one of a blocked route."""
    async with Holdfast(url) as hold:
        outbox = hold.runtime.store.outbox
        new = [a_message("done"), a_message("bad"), a_message("bad"), a_message("blocked")]
        await outbox.add(new)
        leases = await outbox.lease_partitions("relay", lease=LEASE)
        found = {message.id: message for message in (await outbox.due(leases)).messages}
        done, bad, behind, blocked = (found[message.id] for message in new)
        spent = bad._replace(retry_count=4)
        refusals = [
            after_refusal(
                bad._replace(retry_count=count), ROUTE, MessageRefused(""), a_failure(), dead_id="", roll=0
            )
            for count in range(4)
        ]
        for change in refusals:
            assert change is not None
            await outbox.settle(leases, [change])
        last = after_refusal(
            spent,
            ROUTE,
            MessageRefused(""),
            a_failure(message="too large"),
            dead_id=hold.runtime.ids.job_id(),
            roll=0,
        )
        refused = after_refusal(
            blocked, ROUTE, RouteRefused(""), a_failure(message="no queue is bound"), dead_id="", roll=0
        )
        assert last is not None
        assert refused is not None
        await outbox.settle(leases, [published(done), last, refused])
        return {
            name: await outbox.get(message.id)
            for name, message in {"done": done, "bad": bad, "behind": behind, "blocked": blocked}.items()
        }


async def status_of(url: str, message_id: str) -> str:
    async with Holdfast(url) as hold:
        return (await hold.outbox.show(message_id)).status


async def test_messages_are_listed_by_their_state(url: str, tmp_path: Path) -> None:
    stored = await one_of_each(url)

    everything = holdfast("outbox", "list", "--url", url, cwd=tmp_path)
    failed = holdfast("outbox", "list", "--status", "failed", "--json", "--url", url, cwd=tmp_path)
    held = holdfast("outbox", "list", "--held", "--url", url, cwd=tmp_path)

    rows = [line.split("\t") for line in everything.stdout.splitlines()]
    assert [row[0] for row in rows] == [stored[name].id for name in ("blocked", "behind", "bad", "done")]
    assert rows[2][1:4] == ["failed", "grading.request", "Submission/bad"]
    assert rows[2][5:] == ["5", "-", "too large"]
    [listed] = json.loads(failed.stdout)
    assert (listed["id"], listed["status"], listed["retry_count"]) == (stored["bad"].id, "failed", 5)
    assert "payload" not in listed
    [row] = [line.split("\t") for line in held.stdout.splitlines()]
    assert (row[0], row[6]) == (stored["blocked"].id, str(ROUTE))


async def test_messages_are_listed_page_by_page(url: str, tmp_path: Path) -> None:
    stored = await one_of_each(url)

    first = holdfast("outbox", "list", "--limit", "3", "--url", url, cwd=tmp_path)
    last = first.stdout.splitlines()[-1].split("\t")[0]
    second = holdfast("outbox", "list", "--limit", "3", "--before", last, "--url", url, cwd=tmp_path)
    unknown = holdfast("outbox", "list", "--before", UNKNOWN, "--url", url, cwd=tmp_path)

    assert last == stored["bad"].id
    assert f"3 shown, there are more: --limit N, or --before {last}" in first.stderr
    assert [line.split("\t")[0] for line in second.stdout.splitlines()] == [stored["done"].id]
    assert "there are more" not in second.stderr
    assert unknown.returncode == 1
    assert f"there is no message {UNKNOWN} in the outbox" in unknown.stderr


async def test_a_message_is_shown_with_its_payload_on_request(url: str, tmp_path: Path) -> None:
    bad = (await one_of_each(url))["bad"]

    plain = holdfast("outbox", "show", bad.id, "--url", url, cwd=tmp_path)
    whole = holdfast("outbox", "show", bad.id, "--payload", "--json", "--url", url, cwd=tmp_path)

    assert "error_message\ttoo large" in plain.stdout.splitlines()
    assert "requestId" not in plain.stdout
    assert json.loads(whole.stdout)["payload"] == {"requestId": "r1"}


@pytest.mark.clause("OUT-3")
@pytest.mark.parametrize(("command", "status"), [("retry", "pending"), ("skip", "skipped")])
async def test_an_operator_retries_or_skips_a_failed_message(
    url: str, tmp_path: Path, command: str, status: str
) -> None:
    bad = (await one_of_each(url))["bad"]
    words = ("--actor", "ada", "--reason", "the limit was raised", "--url", url)

    preview = holdfast("outbox", command, bad.id, "--dry-run", *words, cwd=tmp_path)
    before = await status_of(url, bad.id)
    done = holdfast("outbox", command, "--all-failed", *words, cwd=tmp_path)
    again = holdfast("outbox", command, bad.id, *words, cwd=tmp_path)

    assert (preview.returncode, before) == (0, "failed")
    assert f"{bad.id}\twould be" in preview.stdout
    assert (done.returncode, await status_of(url, bad.id)) == (0, status)
    assert f"{bad.id}\t{'retried' if command == 'retry' else 'skipped'}" in done.stdout
    assert again.returncode == 1
    assert f"message {bad.id} is {status}, so nothing was changed" in again.stderr
    shown = holdfast("outbox", "show", bad.id, "--json", "--url", url, cwd=tmp_path)
    note = json.loads(shown.stdout)["note"]
    assert (note["actor"], note["reason"]) == ("ada", "the limit was raised")


async def test_what_cannot_be_changed_is_refused_in_one_line(url: str, tmp_path: Path) -> None:
    done = (await one_of_each(url))["done"]
    words = ("--actor", "ada", "--url", url)

    published_one = holdfast("outbox", "skip", done.id, *words, cwd=tmp_path)
    unknown = holdfast("outbox", "retry", UNKNOWN, *words, cwd=tmp_path)
    no_id = holdfast("outbox", "retry", "r1", *words, cwd=tmp_path)
    nothing = holdfast("outbox", "retry", *words, cwd=tmp_path)
    both = holdfast("outbox", "skip", done.id, "--all-failed", *words, cwd=tmp_path)

    assert published_one.returncode == unknown.returncode == no_id.returncode == 1
    assert f"message {done.id} is published" in published_one.stderr
    assert f"there is no message {UNKNOWN}" in unknown.stderr
    assert "is a UUID" in no_id.stderr
    for wrong in (nothing, both):
        assert wrong.returncode == 2
        assert "give the ids of messages, or --all-failed" in wrong.stderr


async def test_blocked_routes_are_listed_and_unblocked(url: str, tmp_path: Path) -> None:
    blocked = (await one_of_each(url))["blocked"]
    words = (str(ROUTE), "--actor", "ada", "--url", url)

    listed = holdfast("outbox", "routes", "--url", url, cwd=tmp_path)
    preview = holdfast("outbox", "unblock", *words, "--dry-run", cwd=tmp_path)
    machine = holdfast("outbox", "routes", "--json", "--url", url, cwd=tmp_path)
    done = holdfast("outbox", "unblock", *words, cwd=tmp_path)
    again = holdfast("outbox", "unblock", *words, cwd=tmp_path)
    none = holdfast("outbox", "routes", "--url", url, cwd=tmp_path)

    [row] = [line.split("\t") for line in listed.stdout.splitlines()]
    assert (row[0], row[1], row[4]) == (str(ROUTE), "1", "no queue is bound")
    assert f"{ROUTE}\twould be unblocked, with 1 messages" in preview.stdout
    assert json.loads(machine.stdout)[0]["held"] == 1
    assert f"{ROUTE}\tunblocked, with 1 messages" in done.stdout
    assert (again.returncode, none.stdout) == (1, "")
    async with Holdfast(url) as hold:
        assert (await hold.outbox.show(blocked.id)).held_by is None


def test_the_schemas_of_an_application_are_printed_and_written(tmp_path: Path) -> None:
    an_application(tmp_path, APPLICATION)

    printed = holdfast("schemas", "app:hold", cwd=tmp_path)
    written = holdfast("schemas", "--app", "app:hold", "--out", "made/schemas", cwd=tmp_path)

    schemas = json.loads(printed.stdout)
    assert list(schemas) == ["grading.request", "grading/callback"]
    assert schemas["grading.request"]["properties"]["requestId"] == {"title": "Requestid", "type": "string"}
    assert schemas["grading.request"]["x-message-version"] == 2
    assert written.returncode == 0
    files = sorted(path.name for path in (tmp_path / "made/schemas").iterdir())
    assert files == ["grading%2Fcallback.schema.json", "grading.request.schema.json"]
    assert json.loads((tmp_path / "made/schemas" / files[1]).read_text("utf-8")) == schemas["grading.request"]


def test_schemas_without_messages_or_application_are_a_clear_error(tmp_path: Path) -> None:
    an_application(tmp_path)

    none = holdfast("schemas", "app:hold", cwd=tmp_path)
    nowhere = holdfast("schemas", cwd=tmp_path)
    (tmp_path / "taken").write_text("", encoding="utf-8")
    an_application(tmp_path, APPLICATION)
    refused = holdfast("schemas", "app:hold", "--out", "taken", cwd=tmp_path)

    assert (none.returncode, nowhere.returncode, refused.returncode) == (2, 2, 2)
    assert "declares no message" in none.stderr
    assert "app:hold" in nowhere.stderr
    assert "--out" in refused.stderr
