"""The simulated provider, as a client meets it: real connections, real resets, a log of what really happened."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvloop

from holdfast_simulator import (
    Close,
    Drip,
    Entry,
    Fault,
    Flood,
    Hang,
    Hint,
    InvalidJson,
    Moment,
    OverloadedStream,
    RateLimit,
    Refuse,
    Reset,
    Rule,
    Script,
    Simulator,
    Slow,
    Status,
    Truncate,
    WrongSchema,
    chat_text,
    count,
    read_log,
)

SOON = timedelta(milliseconds=30)
LONG = timedelta(hours=1)
SHORT_TIMEOUT = httpx.Timeout(5, read=SOON.total_seconds())


@asynccontextmanager
async def a_provider(
    script: Script | None = None, **options: Any
) -> AsyncIterator[tuple[Simulator, httpx.AsyncClient]]:
    async with (
        Simulator(script, **options) as sim,
        httpx.AsyncClient(base_url=sim.url, timeout=5, trust_env=False) as client,
    ):
        yield sim, client


def failing(fault: Fault, **conditions: Any) -> Script:
    return Script.of(Rule(fault, **conditions))


async def send(client: httpx.AsyncClient, key: str = "k", **options: Any) -> httpx.Response:
    return await client.post("/effects/mail", json={"to": "ann"}, headers={"Idempotency-Key": key}, **options)


async def raw(sim: Simulator, *chunks: bytes) -> bytes:
    """Everything that the simulator sends back to these bytes, until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sim.url.rpartition(":")[2]))
    for chunk in chunks:
        writer.write(chunk)
        await writer.drain()
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()


class TestEffects:
    async def test_an_effect_is_echoed_with_its_id_and_found_again_by_id_and_key(self) -> None:
        async with a_provider() as (_, client):
            effect = (await send(client)).json()

            assert effect == {"id": "eff_000001", "name": "mail", "key": "k", "body": {"to": "ann"}}
            assert (await client.get("/effects/eff_000001")).json() == effect
            assert (await client.get("/effects", params={"key": "k"})).json() == {"effects": [effect]}

    async def test_the_same_key_gets_the_first_answer_and_no_second_effect(self) -> None:
        async with a_provider() as (sim, client):
            first, again = await send(client), await send(client)

            assert again.content == first.content
            assert again.headers["Idempotent-Replayed"] == "true"
            assert (sim.counts().calls, sim.counts().effects, sim.counts().replayed_answers) == (2, 1, 1)
            assert [entry.duplicate_of for entry in sim.entries] == [None, "eff_000001"]

    async def test_a_hundred_concurrent_calls_with_one_key_have_one_effect(self) -> None:
        async with a_provider() as (sim, client):
            answers = await asyncio.gather(*(send(client) for _ in range(100)))

            assert {answer.content for answer in answers} == {answers[0].content}
            assert (sim.counts().calls, sim.counts().effects) == (100, 1)

    async def test_a_provider_without_keys_does_it_twice_and_counts_the_duplicate(self) -> None:
        async with a_provider(Script(honours_keys=False)) as (sim, client):
            await send(client)
            await send(client)

            assert (sim.counts().effects, sim.counts().duplicate_effects) == (2, 1)
            assert sim.entries[1].effect_id == "eff_000002"
            assert sim.entries[1].duplicate_of == "eff_000001"

    async def test_a_key_that_comes_after_its_window_has_a_second_effect(self) -> None:
        now = [0.0]
        script = Script(key_window=timedelta(hours=24))
        async with a_provider(script, clock=lambda: now[0]) as (sim, client):
            await send(client)
            now[0] = 24 * 3600.0
            await send(client)

            assert sim.counts().duplicate_effects == 1

    async def test_a_lookup_misses_an_effect_until_the_lag_has_passed(self) -> None:
        now = [0.0]
        script = Script(lookup_lag=timedelta(seconds=30))
        async with a_provider(script, clock=lambda: now[0]) as (_, client):
            await send(client)

            assert (await client.get("/effects?key=k")).json() == {"effects": []}
            now[0] = 30.0
            assert len((await client.get("/effects?key=k")).json()["effects"]) == 1

    @pytest.mark.parametrize("body", [b"{", b"NaN", b"\xff", b"[" * 100_000])
    async def test_a_body_that_is_not_json_has_no_effect(self, body: bytes) -> None:
        async with a_provider() as (sim, client):
            assert (await client.post("/effects/mail", content=body)).status_code == 400
            assert sim.counts().effects == 0

    async def test_an_unknown_route_is_answered_404_and_logged(self) -> None:
        async with a_provider() as (sim, client):
            assert (await client.get("/nowhere")).status_code == 404
            assert (await client.get("/effects/eff_9")).status_code == 404
            assert sim.entries[0].route == "GET /nowhere"


class TestModels:
    async def test_a_chat_answer_depends_on_the_question_alone(self) -> None:
        async with a_provider() as (sim, _):
            client = openai.AsyncOpenAI(api_key="none", base_url=f"{sim.url}/v1", max_retries=0)
            answers = [
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Why?"}]
                )
                for _ in range(2)
            ]
            await client.close()

            assert {answer.choices[0].message.content for answer in answers} == {chat_text("Why?")}
            assert sim.counts().effects == 0

    async def test_a_chat_answer_can_be_streamed(self) -> None:
        async with a_provider() as (sim, _):
            client = openai.AsyncOpenAI(api_key="none", base_url=f"{sim.url}/v1", max_retries=0)
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Why?"}], stream=True
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            await client.close()

            assert text.strip() == chat_text("Why?")

    async def test_a_transcript_depends_on_the_audio_and_not_on_the_form(self) -> None:
        async with a_provider() as (_, client):
            texts = [
                (await client.post("/v1/audio/transcriptions", files={"file": ("a.wav", audio)})).json()[
                    "text"
                ]
                for audio in (b"RIFF1", b"RIFF1", b"RIFF2")
            ]

            assert texts[0] == texts[1] != texts[2]

    @pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/audio/transcriptions"])
    async def test_a_question_without_content_is_refused(self, route: str) -> None:
        async with a_provider() as (_, client):
            assert (await client.post(route, json={"messages": []})).status_code == 400


class TestFaults:
    async def test_a_status_has_its_body_and_headers_and_no_effect(self) -> None:
        fault = Status(402, body={"error": "pay"}, headers={"X-Should-Retry": "false"})
        async with a_provider(failing(fault)) as (sim, client):
            answer = await send(client)

            assert (answer.status_code, answer.json()) == (402, {"error": "pay"})
            assert answer.headers["x-should-retry"] == "false"
            assert (sim.entries[0].status, sim.entries[0].effect_id) == (402, None)

    async def test_a_status_can_hide_an_effect(self) -> None:
        async with a_provider(failing(Status(500, at=Moment.AFTER_EFFECT), times=1)) as (sim, client):
            assert (await send(client)).status_code == 500
            assert (await send(client)).json()["id"] == sim.entries[0].effect_id
            assert sim.counts().effects == 1

    @pytest.mark.parametrize("hint", list(Hint))
    async def test_every_form_of_hint_reaches_the_client_with_a_429(self, hint: Hint) -> None:
        async with a_provider(failing(RateLimit(hint, clock_skew=LONG))) as (_, client):
            answer = await send(client)

            hints = [name for name in answer.headers if "retry" in name or "ratelimit" in name]
            assert answer.status_code == 429
            assert bool(hints) is (hint not in {Hint.NONE, Hint.RETRY_INFO})
            assert answer.headers.get_list("date") == [answer.headers["date"]]

    async def test_a_hint_as_a_date_is_counted_from_the_answers_own_date(self) -> None:
        fault = RateLimit(Hint.HTTP_DATE, wait=timedelta(seconds=20), clock_skew=-LONG)
        async with a_provider(failing(fault)) as (_, client):
            headers = (await send(client)).headers

            wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
            assert wait == timedelta(seconds=20)

    async def test_a_slow_answer_comes_after_an_effect_that_is_logged_already(self) -> None:
        async with a_provider(failing(Slow(LONG))) as (sim, client):
            with pytest.raises(httpx.ReadTimeout):
                await send(client, timeout=SHORT_TIMEOUT)

            assert (sim.entries[0].status, sim.entries[0].effect_id) == (200, "eff_000001")

    async def test_a_slow_effect_takes_place_after_the_client_has_given_up(self) -> None:
        script = failing(Slow(20 * SOON, at=Moment.BEFORE_EFFECT), route="POST /effects/*")
        async with a_provider(script) as (sim, client):
            with pytest.raises(httpx.ReadTimeout):
                await send(client, timeout=SHORT_TIMEOUT)
            assert (await client.get("/effects?key=k")).json() == {"effects": []}

            await sim.wait_for(lambda entry: entry.effect_id is not None)

            assert len((await client.get("/effects?key=k")).json()["effects"]) == 1

    async def test_a_slow_answer_is_whole(self) -> None:
        async with a_provider(failing(Slow(SOON))) as (_, client):
            assert (await send(client)).json()["id"] == "eff_000001"

    async def test_a_hanging_call_is_logged_at_once_and_ends_when_the_client_leaves(self) -> None:
        async with a_provider(failing(Hang())) as (sim, client):
            call = asyncio.create_task(send(client))
            hung = await sim.wait_for(lambda entry: entry.fault == "hang")
            call.cancel()
            await asyncio.wait([call])

            assert (hung.status, hung.effect_id) == (None, None)

    @pytest.mark.parametrize("moment", list(Moment))
    async def test_a_reset_is_seen_alike_at_every_moment_but_has_an_effect_only_after_it(
        self, moment: Moment
    ) -> None:
        async with a_provider(failing(Reset(at=moment), route="POST /effects/*")) as (sim, client):
            with pytest.raises((httpx.ReadError, httpx.WriteError)) as caught:
                await send(client)

            assert isinstance(root_cause(caught.value), ConnectionResetError)
            assert (sim.counts().effects == 1) is (moment is Moment.AFTER_EFFECT)
            assert (sim.entries[0].body_hash is None) is (moment is Moment.BEFORE_READING)
            found = (await client.get("/effects?key=k")).json()["effects"]
            assert len(found) == sim.counts().effects

    async def test_a_reset_before_reading_breaks_a_long_upload(self) -> None:
        head = b"POST /effects/mail HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n"
        async with Simulator(failing(Reset(at=Moment.BEFORE_READING))) as sim:
            with pytest.raises(ConnectionError):
                await raw(sim, head, b" " * 50_000_000)

            assert (sim.entries[0].fault, sim.entries[0].body_hash) == ("reset", None)

    async def test_the_retry_of_a_call_that_was_reset_after_its_effect_does_nothing_twice(self) -> None:
        async with a_provider(failing(Reset(at=Moment.AFTER_EFFECT), times=1)) as (sim, client):
            with pytest.raises(httpx.ReadError):
                await send(client)
            again = await send(client)

            assert again.json()["id"] == sim.entries[0].effect_id
            assert (sim.counts().effects, sim.counts().by_fault) == (1, {"reset": 1})

    @pytest.mark.parametrize("moment", [Moment.BEFORE_EFFECT, Moment.AFTER_EFFECT])
    async def test_a_close_without_an_answer_is_no_reset(self, moment: Moment) -> None:
        async with a_provider(failing(Close(at=moment))) as (sim, client):
            with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
                await send(client)

            assert sim.counts().effects == (moment is Moment.AFTER_EFFECT)

    @pytest.mark.parametrize("keep", [None, 0, 10_000])
    async def test_a_truncated_answer_ends_too_soon_however_much_is_kept(self, keep: int | None) -> None:
        async with a_provider(failing(Truncate(keep))) as (sim, client):
            with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
                await send(client)

            assert (sim.entries[0].status, sim.counts().effects) == (200, 1)

    async def test_a_dripping_answer_is_whole_if_the_client_waits(self) -> None:
        async with a_provider(failing(Drip(timedelta(0)))) as (sim, client):
            answer = await send(client)

            assert (answer.json()["id"], sim.counts().effects) == ("eff_000001", 1)

    async def test_the_head_of_a_dripping_answer_comes_before_its_body(self) -> None:
        async with a_provider(failing(Drip(timedelta(hours=1)))) as (sim, client):
            async with client.stream("POST", "/effects/mail", json={}) as answer:
                assert answer.status_code == 200  # the head is here, and of the body not a byte

            assert sim.counts().effects == 1

    async def test_a_flood_goes_on_until_the_client_leaves(self) -> None:
        async with a_provider(failing(Flood())) as (sim, client):
            seen = 0
            async with client.stream("POST", "/effects/mail", json={}) as answer:
                async for part in answer.aiter_raw():
                    seen += len(part)
                    if seen > 1_000_000:
                        break

            assert answer.headers["content-type"] == "application/json"
            assert (sim.entries[0].status, sim.counts().effects) == (200, 1)

    async def test_a_wrong_schema_is_json_of_another_shape(self) -> None:
        async with a_provider(failing(WrongSchema(body=["what"]))) as (sim, client):
            answer = await send(client)

            assert (answer.status_code, answer.json(), sim.counts().effects) == (200, ["what"], 1)

    async def test_invalid_json_arrives_whole_and_cannot_be_read(self) -> None:
        async with a_provider(failing(InvalidJson())) as (_, client):
            answer = await send(client)

            assert answer.headers["content-type"] == "application/json"
            with pytest.raises(json.JSONDecodeError):
                answer.json()

    async def test_an_overloaded_stream_begins_with_200_and_ends_with_the_error(self) -> None:
        async with a_provider(failing(OverloadedStream())) as (sim, client):
            answer = await client.post("/v1/chat/completions", json={"stream": True})
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream"
            assert "overloaded_error" in answer.text.splitlines()[-2]

            model = openai.AsyncOpenAI(api_key="none", base_url=f"{sim.url}/v1", max_retries=0)
            stream = await model.chat.completions.create(model="m", messages=[], stream=True)
            with pytest.raises(openai.APIError, match="Overloaded"):
                [chunk async for chunk in stream]
            await model.close()

    async def test_a_refusing_provider_cuts_its_clients_and_accepts_no_connection(self) -> None:
        async with a_provider(failing(Refuse(LONG), times=1)) as (sim, client):
            with pytest.raises(httpx.ReadError):
                await send(client)
            with pytest.raises(httpx.ConnectError):
                await send(client)

            assert (sim.counts().calls, sim.counts().by_fault) == (1, {"refuse": 1})

    async def test_a_refusal_ends_after_its_duration_on_the_same_port(self) -> None:
        async with a_provider() as (sim, client):
            sim.set_fault(Refuse(SOON))

            assert (await until_connected(lambda: send(client))).status_code == 200

    async def test_a_refusal_that_is_cleared_ends_at_once(self) -> None:
        async with a_provider() as (sim, client):
            await send(client)
            sim.set_fault(Refuse(LONG))
            with pytest.raises((httpx.ConnectError, httpx.ReadError)):
                await send(client)
            sim.clear_fault()

            assert (await send(client)).status_code == 200

    async def test_two_refusals_in_a_row_last_as_long_as_the_second(self) -> None:
        async with a_provider() as (sim, client):
            sim.set_fault(Refuse(LONG))
            sim.clear_fault()
            sim.set_fault(Refuse(LONG))

            with pytest.raises(httpx.ConnectError):
                await send(client)


class TestScripts:
    async def test_a_rule_looks_into_bodies(self) -> None:
        async with a_provider(failing(Status(422), body="poison")) as (_, client):
            assert (await client.post("/effects/mail", json={"text": "poison"})).status_code == 422
            assert (await client.post("/effects/mail", json={"text": "sugar"})).status_code == 200

    async def test_a_new_script_begins_with_its_first_call(self) -> None:
        async with a_provider(failing(Status(500), times=1)) as (sim, client):
            assert (await send(client)).status_code == 500
            sim.script = failing(Status(502), times=1)
            assert [(await send(client)).status_code for _ in range(2)] == [502, 200]

    async def test_a_standing_fault_goes_before_the_script_and_spends_none_of_it(self) -> None:
        async with a_provider(failing(Status(500), times=1)) as (sim, client):
            sim.set_fault(Status(503))
            assert (await send(client)).status_code == 503
            sim.clear_fault()
            assert [(await send(client)).status_code for _ in range(2)] == [500, 200]


class TestControlPlane:
    async def test_a_script_can_be_put_and_read(self) -> None:
        async with a_provider() as (sim, client):
            script = failing(Status(500), times=1)
            put = await client.put("/_control/script", content=script.dumps())

            assert (put.status_code, sim.script) == (200, script)
            assert Script.loads((await client.get("/_control/script")).content) == script
            assert (await send(client)).status_code == 500

    async def test_a_script_that_cannot_be_read_changes_nothing(self) -> None:
        async with a_provider(failing(Status(500))) as (_, client):
            refused = await client.put("/_control/script", json={"rules": [{"fault": "melt"}]})

            assert refused.status_code == 400
            assert "script.rules[0].fault" in refused.json()["error"]["message"]
            assert (await send(client)).status_code == 500

    async def test_a_standing_fault_is_set_for_a_route_and_cleared(self) -> None:
        async with a_provider() as (_, client):
            await client.post("/_control/fault", json={"fault": "down", "route": "/effects/*"})
            assert (await send(client)).status_code == 503
            assert (await client.get("/nowhere")).status_code == 404

            await client.post("/_control/fault", json={"fault": None})
            assert (await send(client)).status_code == 200

    async def test_the_one_who_asked_for_a_refusal_can_clear_it(self) -> None:
        async with a_provider() as (sim, client):
            await client.post("/_control/fault", json={"fault": {"kind": "refuse", "duration": 3600}})
            async with httpx.AsyncClient(base_url=sim.url, trust_env=False) as other:
                with pytest.raises(httpx.ConnectError):
                    await send(other)
                await client.post("/_control/fault", json={"fault": None})
                assert (await send(other)).status_code == 200

    @pytest.mark.parametrize(
        "body", [b"{", b"[]", b'{"what": 1}', b'{"fault": "down", "route": 1}', b"[" * 99999]
    )
    async def test_a_fault_that_cannot_be_understood_changes_nothing(self, body: bytes) -> None:
        async with a_provider() as (_, client):
            assert (await client.post("/_control/fault", content=body)).status_code == 400
            assert (await send(client)).status_code == 200

    async def test_log_and_counts_show_what_the_simulator_knows_and_leave_themselves_out(self) -> None:
        async with a_provider() as (sim, client):
            await send(client, "a")
            await send(client, "b")
            log = (await client.get("/_control/log")).json()["entries"]
            tail = (await client.get("/_control/log?after=1")).json()["entries"]

            assert [Entry.from_json(line) for line in log] == sim.entries
            assert [line["number"] for line in tail] == [2]
            assert (await client.get("/_control/counts")).json() == sim.counts().to_json()
            assert sim.counts().calls == 2

    async def test_a_reset_forgets_calls_effects_and_standing_faults(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        async with a_provider(failing(Status(500), times=1), log_path=path) as (sim, client):
            await send(client)
            first = await send(client)
            sim.set_fault(Status(503))
            await client.post("/_control/reset")

            assert (sim.counts().calls, read_log(path)) == (0, [])
            assert [(await send(client)).status_code for _ in range(2)] == [500, 200]
            assert "Idempotent-Replayed" not in first.headers
            assert len(read_log(path)) == 2

    async def test_an_unknown_command_is_answered_404(self) -> None:
        async with a_provider() as (_, client):
            assert (await client.get("/_control/nothing")).status_code == 404


class TestConnections:
    async def test_one_connection_serves_many_requests(self) -> None:
        request = b"POST /effects/mail HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
        last = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        async with Simulator() as sim:
            answers = await raw(sim, request * 9 + last)

            assert answers.count(b"HTTP/1.1 200 OK") == 10
            assert sim.counts().effects == 10

    async def test_a_chunked_body_is_read_wherever_it_is_cut(self) -> None:
        head = b"POST /effects/mail HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        async with Simulator() as sim:
            answer = await raw(
                sim, head, b"3\r", b'\n{"a', b'\r\n4;note=x\r\n": 1\r\n1\r\n}', b"\r\n0\r\nT: x\r\n\r\n"
            )

            assert b'"body": {"a": 1}' in answer

    async def test_a_client_that_expects_100_continue_gets_it(self) -> None:
        head = b"POST /effects/a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        async with Simulator() as sim:
            assert (await raw(sim, head, b"{}")).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")

    async def test_a_head_request_has_no_body(self) -> None:
        async with Simulator() as sim:
            assert (await raw(sim, b"HEAD / HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\n")

    @pytest.mark.parametrize(
        ("garbage", "status"),
        [
            (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
            (b"GET / HTTP/9.9\r\n\r\n", b"505"),
            (b"POST /effects/a HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
            (b"POST /effects/a HTTP/1.1\r\nContent-Length: many\r\n\r\n", b"400"),
            (b"POST /effects/a HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
            (b"POST /effects/a HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", b"501"),
            (b"POST /effects/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
            (b"POST /effects/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", b"400"),
            (b"x" * 200_000, b"431"),
        ],
    )
    async def test_garbage_is_answered_and_the_next_client_is_served(
        self, garbage: bytes, status: bytes
    ) -> None:
        async with a_provider() as (sim, client):
            assert (await raw(sim, garbage)).startswith(b"HTTP/1.1 " + status)

            assert (await send(client)).status_code == 200
            assert sim.counts().effects == 1

    async def test_a_client_that_leaves_in_the_middle_of_a_request_leaves_no_trace(self) -> None:
        async with a_provider() as (sim, client):
            _, writer = await asyncio.open_connection("127.0.0.1", int(sim.url.rpartition(":")[2]))
            writer.write(b"POST /effects/a HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
            writer.close()
            await writer.wait_closed()

            assert (await send(client)).status_code == 200
            assert sim.counts().calls == 1

    async def test_stopping_ends_calls_that_hang(self) -> None:
        async with a_provider(failing(Hang())) as (sim, client):
            call = asyncio.create_task(send(client))
            await sim.wait_for(lambda entry: entry.fault == "hang")
            await sim.stop()

            with pytest.raises(httpx.RemoteProtocolError):
                await call

    async def test_a_port_in_use_is_refused(self) -> None:
        async with Simulator() as sim:
            with pytest.raises(OSError, match="in use"):
                await Simulator(port=int(sim.url.rpartition(":")[2])).start()

    def test_resets_and_refusals_work_on_uvloop_too(self) -> None:
        async def scenario() -> None:
            script = Script.of(Rule(Reset(at=Moment.AFTER_EFFECT), times=1), Rule(Refuse(SOON), times=1))
            async with a_provider(script) as (sim, client):
                for _ in range(2):
                    with pytest.raises(httpx.ReadError) as caught:
                        await send(client)
                    assert isinstance(root_cause(caught.value), ConnectionResetError)
                assert (await until_connected(lambda: send(client))).status_code == 200
                assert sim.counts().effects == 1

        uvloop.run(scenario())


class TestLog:
    async def test_the_file_and_the_memory_hold_the_same(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        script = failing(Reset(at=Moment.AFTER_EFFECT), times=1)
        async with a_provider(script, log_path=path) as (sim, client):
            with pytest.raises(httpx.ReadError):
                await send(client)
            await send(client)

            assert read_log(path) == sim.entries
            assert count(read_log(path)) == sim.counts()

    async def test_the_line_is_in_the_file_before_the_answer_arrives(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        async with a_provider(log_path=path) as (_, client):
            for number in range(1, 50):
                effect = (await send(client, f"k{number}")).json()
                assert read_log(path)[-1].effect_id == effect["id"]

    def test_a_line_without_its_end_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_text('{"number": 1, "at"')

        assert read_log(path) == []

    async def test_a_provider_that_restarts_still_knows_its_keys(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        async with a_provider(log_path=path) as (_, client):
            await send(client, "a")
        async with a_provider(log_path=path) as (sim, client):
            again, other = await send(client, "a"), await send(client, "b")

            assert (again.json()["id"], other.json()["id"]) == ("eff_000001", "eff_000002")
            assert [entry.number for entry in sim.entries] == [1, 2, 3]
            assert sim.counts().duplicate_effects == 0

    async def test_waiting_for_a_call_that_does_not_come_ends(self) -> None:
        async with Simulator() as sim:
            with pytest.raises(TimeoutError):
                await sim.wait_for(lambda _: True, timeout=SOON)


class TestProcess:
    @pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
    def test_it_says_where_it_listens_follows_its_script_and_ends_cleanly(
        self, tmp_path: Path, ending: signal.Signals
    ) -> None:
        script = tmp_path / "script.json"
        script.write_text(failing(Status(500), times=1).dumps())
        with a_process("--script", str(script), "--log", str(tmp_path / "log")) as (process, url):
            statuses = [httpx.post(f"{url}/effects/a", trust_env=False).status_code for _ in range(2)]
            process.send_signal(ending)

            assert statuses == [500, 200]
            assert process.wait(timeout=10) == 0
        assert [entry.status for entry in read_log(tmp_path / "log")] == [500, 200]

    def test_the_log_outlives_the_death_of_the_process(self, tmp_path: Path) -> None:
        with a_process("--log", str(tmp_path / "log")) as (process, url):
            effect = httpx.post(f"{url}/effects/a", trust_env=False).json()
            process.kill()
            process.wait(timeout=10)

        assert [entry.effect_id for entry in read_log(tmp_path / "log")] == [effect["id"]]

    def test_a_client_killed_in_the_middle_of_a_call_leaves_its_effect_in_the_log(
        self, tmp_path: Path
    ) -> None:
        log = tmp_path / "log"
        script = tmp_path / "script.json"
        script.write_text(failing(Hang(at=Moment.AFTER_EFFECT)).dumps())
        program = "import sys, httpx; httpx.post(sys.argv[1], timeout=60, trust_env=False)"
        with a_process("--script", str(script), "--log", str(log)) as (_, url):
            client = subprocess.Popen([sys.executable, "-c", program, f"{url}/effects/a"])
            wait_until(lambda: len(read_log(log)) == 1)
            client.kill()
            client.wait(timeout=10)

            assert httpx.get(f"{url}/_control/counts", trust_env=False).json()["effects"] == 1

    @pytest.mark.parametrize("text", ["{", '{"rules": [{"fault": "melt"}]}'])
    def test_a_script_that_cannot_be_read_ends_it_with_one_line(self, tmp_path: Path, text: str) -> None:
        script = tmp_path / "script.json"
        script.write_text(text)
        command = [sys.executable, "-m", "holdfast_simulator", "--script", str(script)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

        assert ended.returncode == 2
        assert len(ended.stderr.splitlines()) == 1


@contextmanager
def a_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "holdfast_simulator", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    with process:
        try:
            yield process, process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.kill()


def root_cause(error: BaseException) -> BaseException:
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper
    return error


async def until_connected(call: Callable[[], Any]) -> httpx.Response:
    async with asyncio.timeout(10):
        while True:
            try:
                response: httpx.Response = await call()
            except httpx.ConnectError:
                await asyncio.sleep(0.005)
            else:
                return response


def wait_until(reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(2000):
        if reached():
            return
        pause.wait(0.005)
    raise AssertionError("it never came")
