"""The ready clients against a provider that fails on purpose, over real connections."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from holdfast import Backoff, ErrorClass, Holdfast, Permanent, current
from holdfast.core.failures.classifier import Classifier
from holdfast.errors import BadResponse, ConfigError, MediaInvalid
from holdfast.providers import ChatClient, JsonGateway, SpeechClient, Transcript
from holdfast.providers.per_loop import PerLoop
from holdfast.testing import Hang as NoAnswer
from holdfast.testing import ScriptedProvider, simulated
from holdfast.types import Failure, Scope, Sent
from holdfast_simulator import (
    Drip,
    Fault,
    Flood,
    Hang,
    Hint,
    InvalidJson,
    OverloadedStream,
    RateLimit,
    Refuse,
    Reset,
    Rule,
    Script,
    Simulator,
    Status,
    Truncate,
    WrongSchema,
    chat_text,
)
from tests.integration.test_simulator import a_process
from tests.unit.loopback import answer, raw, service

QUESTION = [{"role": "user", "content": "Why?"}]
LONG = timedelta(hours=1)
SECRET = "sk-very-secret"


class Reply(BaseModel):
    answer: str
    question: str


class Verdict(BaseModel):
    score: int


class Effect(BaseModel):
    id: str
    key: str | None
    body: Any


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def a_model(*rules: Rule, **options: Any) -> AsyncIterator[tuple[Simulator, ChatClient]]:
    async with (
        Simulator(Script.of(*rules)) as sim,
        ChatClient(f"{sim.url}/v1", model="m", api_key=SECRET, **options) as chat,
    ):
        yield sim, chat


@asynccontextmanager
async def a_gateway(*rules: Rule, **options: Any) -> AsyncIterator[tuple[Simulator, JsonGateway]]:
    async with Simulator(Script.of(*rules)) as sim, JsonGateway(sim.url, **options) as gateway:
        yield sim, gateway


async def failure_of(call: Awaitable[object]) -> Failure:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which exception it is, is for the classifier to say
        await call
    failure = Classifier().classify(caught.value)
    assert SECRET not in f"{caught.value!r} {failure.message} {failure.stack}"
    return failure


def completion(content: str | None, finish_reason: str = "stop", **message: Any) -> WrongSchema:
    said = {"role": "assistant", "content": content, **message}
    return WrongSchema(body={"choices": [{"message": said, "finish_reason": finish_reason}]})


def error_inside(**error: Any) -> WrongSchema:
    return WrongSchema(body={"error": {"message": "no", **error}})


class TestAnswers:
    async def test_a_model_answers_with_text(self) -> None:
        async with a_model() as (sim, chat):
            assert await chat.complete(QUESTION) == chat_text("Why?")

            assert [entry.route for entry in sim.entries] == ["POST /v1/chat/completions"]

    async def test_a_model_answers_with_a_checked_value_of_the_callers_type(self) -> None:
        async with a_model() as (_, chat):
            reply = await chat.complete(QUESTION, answer=Reply, temperature=0)

            assert reply.question == "Why?"

    async def test_the_schema_of_the_answer_and_the_options_are_sent_along(self) -> None:
        provider = ScriptedProvider({"choices": [{"message": {"content": '{"score": 3}'}}]})
        chat = ChatClient("https://llm.example/v1", model="m", transport=provider.transport())

        verdict = await chat.complete(QUESTION, answer=Verdict, temperature=0)

        sent = provider.calls[0].payload
        assert verdict == Verdict(score=3)
        assert provider.calls[0].url == "https://llm.example/v1/chat/completions"
        assert sent["temperature"] == 0
        assert sent["response_format"]["type"] == "json_schema"
        assert sent["response_format"]["json_schema"]["name"] == "Verdict"
        assert sent["response_format"]["json_schema"]["schema"]["required"] == ["score"]

    async def test_the_name_of_a_generic_answer_is_one_that_services_take(self) -> None:
        provider = ScriptedProvider({"choices": [{"message": {"content": "[]"}}]})
        chat = ChatClient("https://llm.example/v1", model="m", transport=provider.transport())
        strange = type("Ärger[int]", (Verdict,), {})

        with pytest.raises(BadResponse):
            await chat.complete(QUESTION, answer=strange)

        assert provider.calls[0].payload["response_format"]["json_schema"]["name"] == "_rger_int_"

    @pytest.mark.parametrize("as_file", [True, False], ids=["file", "bytes"])
    async def test_a_recording_is_uploaded_as_a_form(self, tmp_path: Path, as_file: bool) -> None:
        recording = tmp_path / "call.mp3"
        recording.write_bytes(b"RIFF1")
        async with Simulator() as sim, SpeechClient(f"{sim.url}/v1", model="stt") as speech:
            transcript = await speech.transcribe(recording if as_file else b"RIFF1", language="de")

            assert isinstance(transcript, Transcript)
            assert transcript.text.endswith("of 5 bytes.")
            assert transcript.language is None

    async def test_the_form_has_the_name_of_the_file_the_model_and_the_options(self, tmp_path: Path) -> None:
        recording = tmp_path / "call.mp3"
        recording.write_bytes(b"RIFF1")
        provider = ScriptedProvider({"text": "hello", "duration": 1.5})
        speech = SpeechClient("https://stt.example/v1", model="stt", transport=provider.transport())

        transcript = await speech.transcribe(recording, language="de")

        form = provider.calls[0].payload
        assert transcript == Transcript(text="hello", duration=1.5)
        assert 'name="file"; filename="call.mp3"' in form
        assert "audio/mpeg" in form
        assert 'name="model"\r\n\r\nstt' in form
        assert 'name="language"\r\n\r\nde' in form

    async def test_a_gateway_takes_models_and_gives_models_or_plain_values(self) -> None:
        async with a_gateway() as (_, gateway):
            effect = await gateway.post("effects/pdf", Verdict(score=2), answer=Effect, idempotency_key="k")
            found = await gateway.get("effects", query={"key": "k"})

            assert effect.body == {"score": 2}
            assert found["effects"][0]["id"] == effect.id
            assert await gateway.get(f"/effects/{effect.id}", answer=Effect) == effect

    async def test_an_empty_answer_is_none_unless_something_is_expected(self) -> None:
        with service(raw(204, b"")) as url:
            gateway = JsonGateway(url)

            assert await gateway.post("clear") is None
            with pytest.raises(BadResponse):
                await gateway.post("clear", answer=Effect)
            await gateway.aclose()

    async def test_a_path_cannot_lead_out_of_the_address_and_begins_no_query(self) -> None:
        provider = ScriptedProvider({})
        gateway = JsonGateway("https://gw.example/v1?api-version=2", transport=provider.transport())

        await gateway.post("files/a?b#c", query={"size": 2})
        with pytest.raises(Permanent):
            await gateway.post("files/../../admin")

        [call] = provider.calls
        assert call.url == "https://gw.example/v1/files/a%3Fb%23c?api-version=2&size=2"


RATE_LIMITED = RateLimit(Hint.SECONDS, wait=timedelta(seconds=20))
QUOTA = RateLimit(Hint.NONE, code="insufficient_quota")
SOUND = {"choices": [{"message": {"content": '{"score": 1}'}}]}
HTML = Status(200, body="<html>Service notice</html>")
MAINTENANCE = Status(302, headers={"Location": "https://elsewhere.example/?token=sk-very-secret"})

FAULTS = {
    "rate limit": (RATE_LIMITED, ErrorClass.RATE_LIMITED),
    "quota": (QUOTA, ErrorClass.QUOTA_EXHAUSTED),
    "500": (Status(500), ErrorClass.UPSTREAM_5XX),
    "503": (Status(503), ErrorClass.OVERLOADED),
    "503 in html": (Status(503, body="<html>"), ErrorClass.OVERLOADED),
    "401": (Status(401), ErrorClass.AUTH_DENIED),
    "400": (Status(400), ErrorClass.SCHEMA_INVALID),
    "400 that is a policy": (
        Status(400, body={"error": {"code": "content_policy_violation"}}),
        ErrorClass.POLICY_REJECTED,
    ),
    "413": (Status(413), ErrorClass.TOO_LARGE),
    "redirect": (MAINTENANCE, ErrorClass.MISCONFIGURED),
    "truncated": (Truncate(), ErrorClass.CONNECTION_LOST),
    "reset": (Reset(), ErrorClass.CONNECTION_LOST),
    "overloaded inside": (error_inside(type="overloaded_error"), ErrorClass.OVERLOADED),
    "rate limit inside": (error_inside(code="rate_limit_exceeded"), ErrorClass.RATE_LIMITED),
    "status inside": (error_inside(code=502), ErrorClass.UPSTREAM_5XX),
    "unknown error inside": (error_inside(type="sulking"), ErrorClass.BAD_RESPONSE),
    "endless": (Flood(), ErrorClass.BAD_RESPONSE),
    "html": (HTML, ErrorClass.BAD_RESPONSE),
    "json called text": (Status(200, body=json.dumps(SOUND)), ErrorClass.BAD_RESPONSE),
    "events": (OverloadedStream(), ErrorClass.BAD_RESPONSE),
    "no json": (InvalidJson(), ErrorClass.BAD_RESPONSE),
    "not a number": (InvalidJson(text='{"choices": NaN}'), ErrorClass.BAD_RESPONSE),
    "wrong shape": (WrongSchema(), ErrorClass.BAD_RESPONSE),
    "no choices": (WrongSchema(body={"choices": []}), ErrorClass.BAD_RESPONSE),
    "nothing said": (completion(None), ErrorClass.BAD_RESPONSE),
    "half an answer": (completion('{"score": 1', "length"), ErrorClass.BAD_RESPONSE),
    "filtered": (completion("I …", "content_filter"), ErrorClass.POLICY_REJECTED),
    "refused": (completion(None, refusal="I will not"), ErrorClass.POLICY_REJECTED),
}


class TestFailures:
    @pytest.mark.clause("FAIL-5")
    @pytest.mark.parametrize(("fault", "error_class"), FAULTS.values(), ids=FAULTS)
    async def test_every_fault_has_its_class_and_costs_one_request(
        self, fault: Fault, error_class: ErrorClass
    ) -> None:
        async with a_model(Rule(fault)) as (sim, chat):
            failure = await failure_of(chat.complete(QUESTION, answer=Verdict))

            assert failure.error_class is error_class
            assert sim.counts().calls == 1

    async def test_silence_is_a_timeout(self) -> None:
        async with a_model(Rule(Hang()), timeout="400ms") as (_, chat):
            failure = await failure_of(chat.complete(QUESTION))

            assert failure.error_class is ErrorClass.NETWORK_TIMEOUT
            assert failure.sent is Sent.MAYBE

    async def test_the_timeout_is_for_the_whole_answer_and_not_for_each_of_its_parts(self) -> None:
        async with a_model(Rule(Drip(timedelta(milliseconds=20))), timeout=0.6) as (sim, chat):
            failure = await failure_of(chat.complete(QUESTION))

            assert failure.error_class is ErrorClass.NETWORK_TIMEOUT
            assert failure.message.endswith("did not answer completely within 0.6 s")
            assert sim.counts().calls == 1

    async def test_a_refused_connection_was_not_sent(self) -> None:
        async with a_model() as (sim, chat):
            sim.set_fault(Refuse(LONG))

            failure = await failure_of(chat.complete(QUESTION))

            assert (failure.error_class, failure.sent) == (ErrorClass.CONNECT_FAILED, Sent.NO)

    async def test_the_wait_that_a_service_asks_for_is_read(self) -> None:
        async with a_model(Rule(RATE_LIMITED)) as (_, chat):
            failure = await failure_of(chat.complete(QUESTION))

            assert failure.wait == timedelta(seconds=20)
            assert (failure.upstream_status, failure.scope) == (429, Scope.PROVIDER)

    async def test_a_wait_in_the_body_is_read_too(self) -> None:
        async with a_model(Rule(RateLimit(Hint.RETRY_INFO, wait=timedelta(seconds=7)))) as (_, chat):
            assert (await failure_of(chat.complete(QUESTION))).wait == timedelta(seconds=7)

    async def test_an_error_carries_its_body_and_gives_its_code(self) -> None:
        async with a_model(Rule(QUOTA)) as (_, chat):
            with pytest.raises(httpx.HTTPStatusError, match=r"answered 429 \(insufficient_quota\)") as caught:
                await chat.complete(QUESTION)

            assert caught.value.response.json()["error"]["code"] == "insufficient_quota"
            assert "authorization" not in caught.value.request.headers

    async def test_of_a_long_error_only_the_beginning_is_read(self) -> None:
        long = Status(500, body="x" * 1_000_000)
        async with a_model(Rule(long)) as (_, chat):
            with pytest.raises(httpx.HTTPStatusError) as caught:
                await chat.complete(QUESTION)

            assert len(caught.value.response.content) == 65_536

    async def test_an_error_whose_body_breaks_off_is_still_that_error(self) -> None:
        async with a_gateway(Rule(Truncate())) as (_, gateway):
            failure = await failure_of(gateway.get("nowhere"))

            assert (failure.error_class, failure.upstream_status) == (ErrorClass.NOT_FOUND, 404)

    @pytest.mark.parametrize("size", [199, 200, 201])
    async def test_an_answer_may_have_as_many_bytes_as_are_allowed(self, size: int) -> None:
        text = json.dumps("x" * (size - 2))
        async with a_gateway(Rule(InvalidJson(text=text)), max_bytes=200) as (_, gateway):
            if size <= 200:
                assert len(await gateway.get("text")) == size - 2
            else:
                with pytest.raises(BadResponse, match="more than 200 bytes"):
                    await gateway.get("text")

    async def test_the_places_that_do_not_fit_are_named_without_their_values(self) -> None:
        async with a_gateway(Rule(WrongSchema(body={"score": "private"}))) as (_, gateway):
            failure = await failure_of(gateway.post("rate", answer=Verdict))

            assert failure.message.startswith("the answer does not match Verdict: score: ")
            assert "private" not in failure.message + failure.stack

    async def test_what_a_model_says_is_checked_and_not_quoted(self) -> None:
        async with a_model(Rule(completion('{"score": "private"}'))) as (_, chat):
            failure = await failure_of(chat.complete(QUESTION, answer=Verdict))

            assert failure.error_class is ErrorClass.BAD_RESPONSE
            assert "private" not in failure.message + failure.stack

    async def test_an_answer_with_an_empty_error_is_a_result(self) -> None:
        async with a_gateway(Rule(WrongSchema(body={"error": None, "score": 1}))) as (_, gateway):
            assert await gateway.post("rate", answer=Verdict) == Verdict(score=1)

    async def test_a_compressed_answer_is_not_unpacked(self) -> None:
        packed = answer(200, {}, content_encoding="gzip")
        with service(packed) as url:
            gateway = JsonGateway(url)

            with pytest.raises(BadResponse, match="compressed"):
                await gateway.get("bomb")
            await gateway.aclose()

    async def test_a_cookie_of_one_call_is_not_sent_with_the_next(self) -> None:
        seen: list[str | None] = []

        def greet(request: httpx.Request) -> httpx.Response:
            seen.append(request.headers.get("cookie"))
            return httpx.Response(200, json={}, headers={"Set-Cookie": "customer=ada"})

        gateway = JsonGateway("https://gw.example", transport=httpx.MockTransport(greet))
        await gateway.post("a")
        await gateway.post("b")

        assert seen == [None, None]

    @pytest.mark.parametrize(
        ("recording", "error", "error_class"),
        [(b"", MediaInvalid, ErrorClass.MEDIA_INVALID), (b"12345", Permanent, ErrorClass.TOO_LARGE)],
        ids=["empty", "too large"],
    )
    async def test_a_recording_that_cannot_do_is_not_sent(
        self, tmp_path: Path, recording: bytes, error: type[Exception], error_class: ErrorClass
    ) -> None:
        file = tmp_path / "call.wav"
        file.write_bytes(recording)
        async with Simulator() as sim, SpeechClient(f"{sim.url}/v1", model="stt", max_upload=4) as speech:
            for audio in (recording, file):
                with pytest.raises(error) as caught:
                    await speech.transcribe(audio)
                assert Classifier().classify(caught.value).error_class is error_class

            assert sim.counts().calls == 0


class TestKeys:
    async def test_attempts_at_a_stage_share_a_key_and_jobs_do_not(self, tmp_path: Path) -> None:
        hold = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
        async with a_gateway(Rule(Status(500), route="/effects/*", until=2)) as (sim, gateway):

            @hold.stage(attempts=3, backoff=Backoff.none())
            async def print_letter(name: str) -> str:
                effect = await gateway.post("effects/letter", {"to": name}, answer=Effect)
                assert effect.key == current().key
                return effect.id

            @hold.job("letter")
            async def letter(name: str) -> str:
                return await print_letter(name)

            async with hold, hold.worker():
                first = await (await letter.submit("ann")).result(timeout=30)
                second = await (await letter.submit("bob")).result(timeout=30)

            keys = [entry.key for entry in sim.entries]
            assert first != second
            assert keys[0] is not None
            assert keys[0] == keys[1] == keys[2] != keys[3]
            assert (sim.counts().calls, sim.counts().effects) == (4, 2)

    async def test_a_model_and_a_transcription_send_the_key_as_well(self, tmp_path: Path) -> None:
        hold = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
        async with a_model() as (sim, chat), SpeechClient(f"{sim.url}/v1", model="stt") as speech:

            @hold.job("call")
            async def call() -> str:
                await chat.complete(QUESTION)
                await speech.transcribe(b"RIFF1", idempotency_key="own")
                return current().key

            async with hold, hold.worker():
                key = await (await call.submit()).result(timeout=30)

            assert [entry.key for entry in sim.entries] == [key, "own"]

    async def test_a_key_can_be_given_and_the_header_renamed_or_switched_off(self, tmp_path: Path) -> None:
        hold = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
        seen: list[tuple[str | None, str | None]] = []

        def note(request: httpx.Request) -> httpx.Response:
            seen.append((request.headers.get("Idempotency-Key"), request.headers.get("X-Request-Token")))
            return httpx.Response(200, json={})

        network = httpx.MockTransport(note)
        off = JsonGateway("https://gw.example", transport=network, idempotency_header=None)
        renamed = JsonGateway("https://gw.example", transport=network, idempotency_header="X-Request-Token")

        @hold.job("call")
        async def call() -> None:
            await off.post("a")
            await off.post("a", idempotency_key="given")
            await renamed.post("a", idempotency_key="given")
            await renamed.get("a")

        async with hold, hold.worker():
            await (await call.submit()).result(timeout=30)

        assert seen == [(None, None), (None, None), (None, "given"), (None, None)]

    async def test_outside_a_job_no_key_is_sent_unless_one_is_given(self) -> None:
        async with a_gateway() as (sim, gateway):
            await gateway.post("effects/mail")
            await gateway.post("effects/mail", idempotency_key="mine")

            assert [entry.key for entry in sim.entries] == [None, "mine"]


class TestSecrets:
    async def test_the_key_is_sent_and_never_shown(self) -> None:
        seen: list[str] = []

        def note(request: httpx.Request) -> httpx.Response:
            seen.append(request.headers["Authorization"])
            return httpx.Response(401, json={"error": {"code": "invalid_api_key", "message": SECRET}})

        chat = ChatClient(
            "https://llm.example/v1", model="m", api_key=SECRET, transport=httpx.MockTransport(note)
        )
        failure = await failure_of(chat.complete(QUESTION))

        assert seen == [f"Bearer {SECRET}"]
        assert failure.error_class is ErrorClass.AUTH_DENIED
        assert repr(chat) == "ChatClient('https://llm.example/v1')"

    async def test_a_user_in_the_address_is_sent_as_a_login_and_never_shown(self) -> None:
        seen: list[tuple[str, str]] = []

        def note(request: httpx.Request) -> httpx.Response:
            seen.append((str(request.url), request.headers["Authorization"]))
            return httpx.Response(500)

        gateway = JsonGateway(f"https://ada:{SECRET}@gw.example", transport=httpx.MockTransport(note))
        failure = await failure_of(gateway.post("convert", query={"token": SECRET}))

        assert seen[0][0] == f"https://gw.example/convert?token={SECRET}"
        assert seen[0][1].startswith("Basic ")
        assert failure.message == "HTTPStatusError: https://gw.example/convert answered 500"
        assert repr(gateway) == "JsonGateway('https://gw.example')"

    @pytest.mark.parametrize(
        "options",
        [
            {"api_key": f"{SECRET}\n"},
            {"api_key": f"{SECRET}ü"},
            {"api_key": ""},
            {"headers": {"X-Api-Key": f" {SECRET}"}},
            {"timeout": 0},
            {"timeout": "soon"},
        ],
        ids=str,
    )
    def test_what_cannot_be_used_is_refused_at_once_and_not_quoted(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError) as caught:
            JsonGateway("https://gw.example", **options)

        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "gw.example",
            "ftp://gw.example",
            f"//ada:{SECRET}@gw.example",
            f"https://{SECRET}:x:y:z@:99999",
        ],
    )
    def test_an_address_that_is_none_is_refused_and_not_quoted(self, url: str) -> None:
        with pytest.raises(ConfigError, match="is not an address") as caught:
            JsonGateway(url)

        assert SECRET not in str(caught.value)

    def test_a_key_and_a_login_exclude_each_other(self) -> None:
        with pytest.raises(ConfigError, match="not both"):
            JsonGateway("https://ada:pw@gw.example", api_key=SECRET)


class TestLoops:
    def test_a_client_made_at_import_serves_one_loop_after_another(self) -> None:
        with a_process() as (_, url):
            chat = ChatClient(f"{url}/v1", model="m")

            said = [asyncio.run(chat.complete(QUESTION)) for _ in range(3)]

            assert said == [chat_text("Why?")] * 3

    def test_the_connections_of_a_loop_that_has_ended_are_let_go(self) -> None:
        async def client_here() -> weakref.ref[httpx.AsyncClient]:
            return weakref.ref(clients.here())

        clients = PerLoop(httpx.AsyncClient)
        first, second = asyncio.run(client_here()), asyncio.run(client_here())
        gc.collect()

        assert first() is None
        assert second() is not None

    def test_a_forked_process_does_not_touch_the_connections_of_its_parent(self) -> None:
        with a_process() as (_, url), asyncio.Runner() as runner:
            chat = ChatClient(f"{url}/v1", model="m")
            assert runner.run(chat.complete(QUESTION)) == chat_text("Why?")
            child = os.fork()
            if child == 0:
                os._exit(_ask_in_a_child(chat))

            _, status = os.waitpid(child, 0)
            again = runner.run(chat.complete(QUESTION))
            runner.run(chat.aclose())

            assert os.waitstatus_to_exitcode(status) == 0
            assert again == chat_text("Why?")

    async def test_a_closed_client_opens_again(self) -> None:
        async with a_model() as (_, chat):
            await chat.complete(QUESTION)
            await chat.aclose()

            assert await chat.complete(QUESTION) == chat_text("Why?")

    async def test_calls_side_by_side_do_not_wait_for_each_other(self) -> None:
        async with a_gateway(Rule(Hang())) as (sim, gateway):
            calls = [asyncio.create_task(gateway.post("effects/mail")) for _ in range(120)]

            last = await sim.wait_for(lambda entry: entry.number == 120)

            assert last.fault == "hang"
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)

    def test_a_test_in_virtual_time_needs_no_network(self) -> None:
        hold = Holdfast("sqlite:///unused.db")
        provider = ScriptedProvider(NoAnswer(), {"choices": [{"message": {"content": "done"}}]})
        chat = ChatClient("https://llm.example/v1", model="m", transport=provider.transport())

        @hold.job("ask", attempts=2)
        async def ask() -> str:
            return await chat.complete(QUESTION)

        @simulated(hold)
        async def run() -> None:
            assert await (await ask.submit()).result() == "done"

        run()
        assert len(provider.calls) == 2
        assert [call.key for call in provider.calls] == [provider.calls[0].key] * 2


def _ask_in_a_child(chat: ChatClient) -> int:
    try:
        return 0 if asyncio.run(chat.complete(QUESTION)) == chat_text("Why?") else 1
    except BaseException:
        return 2


class TestSettings:
    @pytest.mark.clause("CFG-1")
    async def test_a_gateway_takes_its_address_and_timeout_from_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[tuple[str, float]] = []

        def note(request: httpx.Request) -> httpx.Response:
            seen.append((str(request.url), request.extensions["timeout"]["read"]))
            return httpx.Response(204)

        network = httpx.MockTransport(note)
        monkeypatch.setenv("GATEWAY_URL", "https://gw.example/v1")
        monkeypatch.setenv("GATEWAY_TIMEOUT_MS", "1500")
        await JsonGateway(transport=network).post("pdf")
        await JsonGateway("https://other.example", timeout="2s", transport=network).post("pdf")
        monkeypatch.delenv("GATEWAY_TIMEOUT_MS")
        await JsonGateway(transport=network).post("pdf")

        assert seen == [
            ("https://gw.example/v1/pdf", 1.5),
            ("https://other.example/pdf", 2.0),
            ("https://gw.example/v1/pdf", 60.0),
        ]

    @pytest.mark.clause("CFG-1")
    def test_without_any_address_there_is_no_gateway(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GATEWAY_URL", raising=False)

        with pytest.raises(ConfigError, match="GATEWAY_URL"):
            JsonGateway()

    @pytest.mark.clause("CFG-1")
    def test_a_timeout_that_makes_no_sense_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GATEWAY_TIMEOUT_MS", "soon")

        with pytest.raises(ConfigError, match="GATEWAY_TIMEOUT_MS='soon' is not usable"):
            JsonGateway("https://gw.example")


def test_without_httpx_the_extra_is_named() -> None:
    program = "import sys; sys.modules['httpx'] = None\nimport holdfast\nimport holdfast.providers"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1].endswith("install it with: pip install 'holdfast[http]'")
