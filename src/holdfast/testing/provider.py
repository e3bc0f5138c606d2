"""A scripted service: it fails, hangs, is slow, or takes effect and loses its answer.

It honours idempotency keys: a second call with a known key has no second effect, and gets the answer of the
first one.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.engine.execution.context import CURRENT
from holdfast.testing.processes import PROCESS


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the provider received. `at` is in seconds of the event loop's clock, for comparison with others."""

    at: float
    key: str | None
    payload: Any
    method: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer with a *status*, a *body* and *headers*; *after* is how long that takes.

    Below 400 the call takes effect, and does so at once, however long the answer takes.
    """

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    after: Duration = 0


@dataclass(frozen=True, slots=True)
class RateLimited:
    """Answer 429, with `Retry-After` if *retry_after* is given."""

    retry_after: Duration | None = None

    def as_answer(self) -> Answer:
        """Return it as an answer."""
        if self.retry_after is None:
            return Answer(status=429)
        return Answer(status=429, headers={"Retry-After": f"{duration(self.retry_after).total_seconds():g}"})


@dataclass(frozen=True, slots=True)
class Hang:
    """Never answer. Nothing takes effect."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """Take effect, with *body* as the answer; but the connection breaks before it arrives."""

    body: Any = None


@dataclass(frozen=True, slots=True)
class Crash:
    """Take effect, with *body* as the answer; but the worker dies before it arrives. For simulations."""

    body: Any = None


class ScriptedError(Exception):
    """Raised by a direct call of a provider for an answer of 400 or more."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"the provider answered {answer.status}")
        self.status_code = answer.status
        self.headers = answer.headers
        self.body = answer.body


class _AnswerLost(ConnectionResetError):
    pass


class ScriptedProvider:
    """A service whose every call takes the next step of a script; the last one is repeated.

    A step is an `Answer`, a number (the status of one), an exception to raise, one of `Hang`, `RateLimited`,
    `LostAnswer` and `Crash`, a function from the `Call` to any of these, or a body to answer with.

    >>> provider = ScriptedProvider(503, RateLimited(retry_after="30s"), {"text": "hello"})

    Call it (`await provider(payload, key=…)`), or give `provider.transport()` to an httpx client.
    """

    def __init__(self, *script: Any) -> None:
        if not script:
            raise ConfigError("a provider without a script has nothing to answer; give it at least one step")
        self.calls: list[Call] = []
        """Every call, in order."""
        self.effects: list[Call] = []
        """The calls that took effect; a repeated key takes effect once."""
        self._script = script
        self._remembered: dict[str, Answer] = {}

    async def __call__(self, payload: Any = None, *, key: str | None = None) -> Any:
        """Call the service, and return the body of its answer. Raises `ScriptedError` for 400 or more."""
        answer = await self._answer(Call(_now(), key, payload))
        if answer.status >= 400:
            raise ScriptedError(answer)
        return answer.body

    def transport(self) -> Any:
        """Return a transport for the `AsyncClient` of httpx, or, if no step takes time, for its `Client`."""
        return _Transport(self)

    async def _answer(self, call: Call) -> Answer:
        """Carry out the next step, including its delay."""
        step = self._start(call)
        match step:
            case Hang():
                return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # never
            case Crash():
                await _die()
                raise AssertionError("a dead worker went on")
            case _:
                await asyncio.sleep(duration(step.after).total_seconds())
                return step

    def _answer_at_once(self, call: Call) -> Answer:
        """Carry out the next step. Raises `ConfigError` if it takes time."""
        step = self._start(call)
        if not isinstance(step, Answer) or duration(step.after):
            raise ConfigError(
                "this step of the script takes time, or the whole worker, and a plain client waits in real time; "
                "call the provider from an async client"
            )
        return step

    def _start(self, call: Call) -> Answer | Hang | Crash:
        """Carry out the part of the next step that takes no time: its effect, or its exception."""
        self.calls.append(call)
        step = self._next_step(call)
        match step:
            case Answer():
                return self._act(call, step)
            case LostAnswer():
                self._act(call, Answer(step.body))
                raise _AnswerLost("the provider's answer was lost")
            case Crash():
                self._act(call, Answer(step.body))
        return step

    def _next_step(self, call: Call) -> Answer | Hang | LostAnswer | Crash:
        """Return the step of this call, or raise it."""
        step = self._script[min(len(self.calls), len(self._script)) - 1]
        if callable(step) and not isinstance(step, type):
            step = step(call)
        if isinstance(step, BaseException) or (isinstance(step, type) and issubclass(step, BaseException)):
            raise step
        match step:
            case RateLimited():
                return step.as_answer()
            case int() if not isinstance(step, bool):
                return Answer(status=step)
            case Answer() | Hang() | LostAnswer() | Crash():
                return step
        return Answer(step)

    def _act(self, call: Call, answer: Answer) -> Answer:
        """Take effect, unless *answer* is an error or the key is known."""
        if answer.status >= 400:
            return answer
        if call.key is not None and call.key in self._remembered:
            return replace(self._remembered[call.key], after=answer.after)
        self.effects.append(call)
        if call.key is not None:
            self._remembered[call.key] = answer
        return answer


class _Transport:
    """A transport for httpx and compatible libraries. The library is that of the request; none is imported."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self._provider = provider

    async def handle_async_request(self, request: Any) -> Any:
        library = _library_of(request)
        call = _call_from(request, await request.aread())
        read_timeout = asyncio.timeout(request.extensions.get("timeout", {}).get("read"))
        try:
            async with read_timeout:
                return _response(library, request, await self._provider._answer(call))
        except TimeoutError as error:
            if not read_timeout.expired():
                raise
            raise library.ReadTimeout("the provider did not answer in time", request=request) from error
        except _AnswerLost as error:
            raise library.ReadError(str(error), request=request) from error

    def handle_request(self, request: Any) -> Any:
        library = _library_of(request)
        try:
            answer = self._provider._answer_at_once(_call_from(request, request.read()))
        except _AnswerLost as error:
            raise library.ReadError(str(error), request=request) from error
        return _response(library, request, answer)

    async def __aenter__(self) -> "_Transport":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def __enter__(self) -> "_Transport":
        return self

    def __exit__(self, *_: object) -> None:
        return

    async def aclose(self) -> None:
        return

    def close(self) -> None:
        return


def _library_of(request: object) -> Any:
    return sys.modules[type(request).__module__.partition(".")[0]]


def _call_from(request: Any, content: bytes) -> Call:
    try:
        payload = json.loads(content) if content else None
    except ValueError:
        payload = content.decode(errors="replace")
    return Call(_now(), request.headers.get("Idempotency-Key"), payload, request.method, str(request.url))


def _response(library: Any, request: Any, answer: Answer) -> Any:
    kind = "text" if isinstance(answer.body, str) else "json"
    body = {} if answer.body is None else {kind: answer.body}
    return library.Response(answer.status, headers=dict(answer.headers), request=request, **body)


async def _die() -> None:
    process = PROCESS.get()
    if process is None:
        raise ConfigError("Crash() takes down the worker that calls: use it in a job of a simulation")
    process.die()
    await asyncio.sleep(0)  # a killed process does not continue after this line


def _now() -> float:
    loop = asyncio._get_running_loop()
    job = CURRENT.get()
    if loop is None and job is not None:
        loop = job.loop  # a plain job runs in a thread
    return time.monotonic() if loop is None else loop.time()
