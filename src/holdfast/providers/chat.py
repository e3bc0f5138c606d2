"""A language model behind an OpenAI-compatible API."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Unpack, overload

from pydantic import BaseModel, Field

from holdfast.core.errors import BadResponse, PolicyRejected
from holdfast.providers.answers import Shape, fitted
from holdfast.providers.http import HttpClient, Options

Message = Mapping[str, Any]


class ChatClient(HttpClient):
    """Asks a model, at an address such as `https://llm.example/v1`. The options are those of `HttpClient`."""

    def __init__(self, url: str, *, model: str, **options: Unpack[Options]) -> None:
        super().__init__(url, **options)
        self._model = model

    @overload
    async def complete(
        self,
        messages: Sequence[Message],
        *,
        answer: None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> str: ...
    @overload
    async def complete(
        self,
        messages: Sequence[Message],
        *,
        answer: type[Shape],
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Shape: ...
    async def complete(
        self,
        messages: Sequence[Message],
        *,
        answer: type[BaseModel] | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Any:
        """Ask once, and give what the model says: text, or with *answer* that model of pydantic.

        Then the schema of *answer* is asked for, and what comes is checked against it. *options* go into the request
        as they are (`temperature=0`). Raises `BadResponse` for half an answer or one that does not fit,
        `PolicyRejected` if the service or the model refuses, and what the network and the service bring.
        """
        shape = {} if answer is None else {"response_format": _schema(answer)}
        question = {"model": self._model, "messages": list(messages), **shape, **options}
        text = await self._asked("POST", "chat/completions", json=question, idempotency_key=idempotency_key)
        said = _said(fitted(_Completion, text, what="the completion").choices[0])
        return said if answer is None else fitted(answer, said, what="the model's answer")


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


def _said(choice: _Choice) -> str:
    if choice.finish_reason == "content_filter":
        raise PolicyRejected("the service's content filter stopped the answer")
    if choice.message.refusal:
        raise PolicyRejected("the model refused to answer")
    if choice.finish_reason == "length":
        raise BadResponse("the answer broke off at the limit of tokens; allow more, or ask for less")
    if not choice.message.content:
        raise BadResponse("the model said nothing")
    return choice.message.content


def _schema(answer: type[BaseModel]) -> dict[str, Any]:
    name = re.sub(r"[^\w-]", "_", answer.__name__, flags=re.ASCII)[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": answer.model_json_schema()}}
