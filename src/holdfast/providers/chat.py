"""A language model behind an OpenAI-compatible API."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Unpack, overload

from pydantic import BaseModel, Field

from holdfast.core.errors import BadResponse, PolicyRejected
from holdfast.providers.answers import Shape, validate
from holdfast.providers.http import HttpClient, Options

Message = Mapping[str, Any]


class ChatClient(HttpClient):
    """Calls a model, at an address such as `https://llm.example/v1`. The options are those of `HttpClient`."""

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
        """Send one request, and return the model's answer: text, or with *answer* an instance of that pydantic model.

        With *answer*, the request asks for its schema, and the answer is validated against it. *options* are added to
        the request (`temperature=0`). Raises `BadResponse` for an incomplete answer or one that does not match,
        `PolicyRejected` if the service or the model refuses, and the errors of the network and the service.
        """
        shape = {} if answer is None else {"response_format": _schema(answer)}
        question = {"model": self._model, "messages": list(messages), **shape, **options}
        text = await self._request("POST", "chat/completions", json=question, idempotency_key=idempotency_key)
        content = _content_of(validate(_Completion, text, what="the completion").choices[0])
        return content if answer is None else validate(answer, content, what="the model's answer")


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


def _content_of(choice: _Choice) -> str:
    if choice.finish_reason == "content_filter":
        raise PolicyRejected("the service's content filter stopped the answer")
    if choice.message.refusal:
        raise PolicyRejected("the model refused to answer")
    if choice.finish_reason == "length":
        raise BadResponse(
            "the answer reached the limit of tokens; raise the limit, or request a shorter answer"
        )
    if not choice.message.content:
        raise BadResponse("the answer of the model is empty")
    return choice.message.content


def _schema(answer: type[BaseModel]) -> dict[str, Any]:
    name = re.sub(r"[^\w-]", "_", answer.__name__, flags=re.ASCII)[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": answer.model_json_schema()}}
