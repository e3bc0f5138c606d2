"""A service that does what a script says: fails, hangs, is slow, or acts and loses its answer.

It remembers idempotency keys as such services do: a second call with a known key has no second
effect, and is answered as the first one was.
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
    """A call that the provider got. `at` counts seconds on the event loop's clock: compare two of them."""

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
        """Put it as an answer."""
        if self.retry_after is None:
            return Answer(status=429)
        return Answer(status=429, headers={"Retry-After": f"{duration(self.retry_after).total_seconds():g}"})


@dataclass(frozen=True, slots=True)
class Hang:
    """Never answer. Nothing takes effect."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """Take effect, with *body* as the answer; but the connection breaks before it is there."""

    body: Any = None


@dataclass(frozen=True, slots=True)
class Crash:
    """Take effect, with *body* as the answer; but the worker dies before it is there. For simulations."""

    body: Any = None


class ScriptedError(Exception):
    """What a plain call of a provider raises for an answer of 400 or more."""

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
        """The calls that took effect: those with a known key did not, again."""
        self._script = script
        self._remembered: dict[str, Answer] = {}

    async def __call__(self, payload: Any = None, *, key: str | None = None) -> Any:
        """Call the service, and give the body of its answer. Raises `ScriptedError` for 400 or more."""
        answer = await self._answer(Call(_now(), key, payload))
        if answer.status >= 400:
            raise ScriptedError(answer)
        return answer.body

    def transport(self) -> Any:
        """Give a transport for the `AsyncClient` of httpx, or, if no step takes time, for its `Client`."""
        return _Transport(self)

    async def _answer(self, call: Call) -> Answer:
        """Do what the next step says, however long it takes."""
        step = self._begun(call)
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
        """Do what the next step says, if that takes no time. Raises `ConfigError` if it does."""
        step = self._begun(call)
        if not isinstance(step, Answer) or duration(step.after):
            raise ConfigError(
                "this step of the script takes time, or the whole worker, and a plain client waits in real time; "
                "call the provider from an async client"
            )
        return step

    def _begun(self, call: Call) -> Answer | Hang | Crash:
        """Take the next step, as far as it takes no time: an effect is there, an exception is raised."""
        self.calls.append(call)
        step = self._step(call)
        match step:
            case Answer():
                return self._act(call, step)
            case LostAnswer():
                self._act(call, Answer(step.body))
                raise _AnswerLost("the provider's answer was lost")
            case Crash():
                self._act(call, Answer(step.body))
        return step

    def _step(self, call: Call) -> Answer | Hang | LostAnswer | Crash:
        """Give the step that this call takes, or raise it."""
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
        """Take effect, unless *answer* says no or the key was seen before."""
        if answer.status >= 400:
            return answer
        if call.key is not None and call.key in self._remembered:
            return replace(self._remembered[call.key], after=answer.after)
        self.effects.append(call)
        if call.key is not None:
            self._remembered[call.key] = answer
        return answer


class _Transport:
    """What httpx and its kin call a transport. The library is the one whose request comes in; none is imported."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self._provider = provider

    async def handle_async_request(self, request: Any) -> Any:
        library = _library_of(request)
        call = _call_from(request, await request.aread())
        patience = asyncio.timeout(request.extensions.get("timeout", {}).get("read"))
        try:
            async with patience:
                return _response(library, request, await self._provider._answer(call))
        except TimeoutError as error:
            if not patience.expired():
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
    await asyncio.sleep(0)  # whoever is dead does not come back from here


def _now() -> float:
    loop = asyncio._get_running_loop()
    job = CURRENT.get()
    if loop is None and job is not None:
        loop = job.loop  # a plain job runs in a thread
    return time.monotonic() if loop is None else loop.time()
