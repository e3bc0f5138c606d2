"""A ticket reaches another program: signed, under one id however often it is sent, and never by a redirect."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from holdfast import Holdfast, Permanent, Retryable
from holdfast.channels import TicketWebhook
from holdfast.core.dead_letters.ticket import Ticket, TicketKind
from holdfast.core.failures.escalation import Escalation
from holdfast.errors import ConfigError
from tests.contract.conftest import Database, DatabaseClock, FakeClock, Logger
from tests.contract.letters import A_MINUTE_LATER, failed, notify_tickets, opened

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
LOOPBACK = ("127.0.0.0/8",)
KEY = b"a secret of thirty-two characters"
TICKET = Ticket(
    "job-1:1", TicketKind.DEAD_LETTER, Escalation.PAGE, "job grade failed", NOON, "job-1", "0123abcd"
)


class Post(NamedTuple):
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """A program that receives tickets; it answers with what is in its list, and then with 204."""

    url: str = ""
    answers: list[str] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        named = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in named}
        body = await reader.readexactly(int(headers["content-length"]))
        self.posts.append(Post(head[0].split()[1], headers, body))
        answer = self.answers.pop(0) if self.answers else "204 No Content"
        writer.write(f"HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    async with await asyncio.start_server(made.receive, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/tickets"
        yield made


def signature(key: bytes, post: Post) -> str:
    """Sign what came in, as the receiver would to compare."""
    signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def host_of(url: str) -> str:
    """Leave out what may be a secret of the service: the path, too."""
    return url.rpartition("/")[0]


def in_base64(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


@pytest.mark.parametrize("written", [in_base64, bytes.decode], ids=["base64", "as it is"])
async def test_a_ticket_is_posted_as_json_and_signed(
    receiver: Receiver, written: Callable[[bytes], str]
) -> None:
    await TicketWebhook(receiver.url, secrets=[written(KEY)], allow=LOOPBACK, clock=FakeClock(NOON))(TICKET)

    [post] = receiver.posts
    sent = json.loads(post.body)
    assert (sent["id"], sent["jobId"], sent["raisedAt"]) == (
        TICKET.id,
        TICKET.job_id,
        TICKET.raised_at.isoformat(),
    )
    assert sorted(sent.values(), key=str) == sorted(TICKET.to_dict().values(), key=str)
    assert post.headers["content-type"] == "application/json"
    assert post.headers["webhook-id"] == TICKET.id
    assert post.headers["webhook-timestamp"] == str(int(NOON.timestamp()))
    assert post.headers["webhook-signature"] == signature(KEY, post)


async def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    await TicketWebhook(receiver.url, allow=LOOPBACK, clock=FakeClock(NOON))(TICKET)

    [post] = receiver.posts
    assert "webhook-signature" not in post.headers


@pytest.mark.parametrize("status", ["500 Sorry", "404 Not Found", "301 Elsewhere", "307 Elsewhere"])
async def test_what_is_no_success_is_not_taken_for_one_and_no_other_address_is_called(
    receiver: Receiver, status: str
) -> None:
    receiver.answers = [f"{status}\r\nlocation: {receiver.url}/elsewhere"]
    url = receiver.url.replace("//", "//ann:pass-word@") + "?token=s3cret"

    with pytest.raises(Retryable) as refused:
        await TicketWebhook(url, allow=LOOPBACK, clock=FakeClock(NOON))(TICKET)

    assert str(refused.value) == f"the webhook {host_of(receiver.url)} answered {status[:3]}"
    assert [post.path for post in receiver.posts] == ["/tickets?token=s3cret"]


async def test_an_address_that_does_not_answer_keeps_its_secrets_out_of_the_error() -> None:
    webhook = TicketWebhook(
        "http://ann:pass-word@127.0.0.1:9/x?token=s3cret", allow=LOOPBACK, clock=FakeClock(NOON)
    )

    with pytest.raises(Retryable) as refused:
        await webhook(TICKET)

    assert str(refused.value) == "the webhook http://127.0.0.1:9 did not answer: ConnectError"
    assert not any(secret in repr(webhook) for secret in ("pass-word", "s3cret"))


@pytest.mark.parametrize(
    ("url", "secrets", "why"),
    [
        ("ftp://ann:pass-word@127.0.0.1/x", [], "must begin with http"),
        ("http:///x", [], "name a host"),
        ("http://127.0.0.1/x", ["whsec_not base64"], "must have base64"),
        ("http://127.0.0.1/x", ["an old one", ""], "is empty"),
    ],
)
def test_what_cannot_work_is_refused_at_once_without_its_secrets(
    url: str, secrets: list[str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        TicketWebhook(url, secrets=secrets, clock=FakeClock(NOON))

    assert "pass-word" not in str(refused.value)
    assert "not base64" not in str(refused.value)


@contextmanager
def configured_for(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as environment:
        environment.setenv("HOLDFAST_TICKET_WEBHOOK_URL", receiver.url)
        environment.setenv("HOLDFAST_TICKET_WEBHOOK_SECRET", in_base64(KEY))
        environment.setenv("HOLDFAST_TICKET_WEBHOOK_ALLOW", "127.0.0.1")
        yield


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_did_not_arrive_is_sent_again_under_the_same_id(
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    database: Database,
    clock: DatabaseClock,
    logger: Logger,
) -> None:
    receiver.answers = ["500 Sorry"]
    with configured_for(receiver, monkeypatch):
        async with opened(database, logger) as hold:

            @hold.job("grade")
            async def grade() -> None:
                raise Permanent("no such essay")

            job_id = await failed(hold, grade)
            await notify_tickets(hold)
            await notify_tickets(hold)  # too early: a worker has taken it for a minute
            await clock.advance(A_MINUTE_LATER)
            await notify_tickets(hold)
            await clock.advance(A_MINUTE_LATER)
            await notify_tickets(hold)

    assert [json.loads(post.body)["jobId"] for post in receiver.posts] == [job_id, job_id]
    assert len({post.headers["webhook-id"] for post in receiver.posts}) == 1
    [line] = logger.lines("ticket notification failed")
    assert line["message"] == f"the webhook {host_of(receiver.url)} answered 500"


async def test_the_settings_name_one_webhook_however_often_the_runtime_is_assembled(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Ticket] = []
    with configured_for(receiver, monkeypatch):
        hold = Holdfast("sqlite:///none.db")
        twin = hold._twin()
        hold.on_ticket(received.append)

    for each in (hold, twin):
        webhook, function = each.runtime.letters.hooks
        assert isinstance(webhook, TicketWebhook)
        assert function == received.append
