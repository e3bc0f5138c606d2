"""Simulated language and speech models: small answers that depend only on the request."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from holdfast_simulator.http import Answer, Head, error_answer, event, events_answer, json_answer

_CREATED = 1_700_000_000


def chat_completion(body: bytes) -> Answer:
    """Answer a chat completion, as JSON or, if requested, as a stream of events."""
    try:
        question = json.loads(body)
        last = str(question["messages"][-1]["content"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return error_answer(400, "invalid_request_error", "messages must be a list that is not empty")
    text = chat_text(last, as_json=bool(question.get("response_format")))
    shared = {
        "id": f"chatcmpl-{_digest(body)}",
        "created": _CREATED,
        "model": str(question.get("model", "simulated")),
    }
    if question.get("stream"):
        chunks = [_chunk(shared, {"content": f"{word} "}) for word in text.split()]
        return events_answer(*chunks, _chunk(shared, {}, finish_reason="stop"), event("[DONE]"))
    return json_answer(200, _completion(shared, last, text))


def chat_text(question: str, *, as_json: bool = False) -> str:
    """Return the answer of the model to a question.

    >>> chat_text("Summarise this letter")
    'Answer e2bbca5e to: Summarise this letter'
    """
    digest = _digest(question.encode())
    if as_json:
        return json.dumps({"answer": digest, "question": question[:80]})
    return f"Answer {digest} to: {question[:80]}"


def transcription(head: Head, body: bytes) -> Answer:
    """Answer a transcription; the text depends only on the bytes of the uploaded file."""
    audio = uploaded_file(head.headers.get("content-type", ""), body)
    if audio is None:
        return error_answer(400, "invalid_request_error", "a multipart form with a file is required")
    return json_answer(200, {"text": f"Transcript {_digest(audio)} of {len(audio)} bytes."})


def uploaded_file(content_type: str, body: bytes) -> bytes | None:
    """Return the content of the form's part named `file`, or None if there is none."""
    _, marker, boundary = content_type.partition("boundary=")
    if not marker:
        return None
    for part in body.split(b"--" + boundary.partition(";")[0].strip('" ').encode()):
        names, end, content = part.partition(b"\r\n\r\n")
        if end and b'name="file"' in names:
            return content.removesuffix(b"\r\n")
    return None


def _completion(shared: Mapping[str, Any], question: str, text: str) -> dict[str, Any]:
    prompt_tokens, completion_tokens = len(question.split()), len(text.split())
    message = {"role": "assistant", "content": text}
    return {
        **shared,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def _chunk(shared: Mapping[str, Any], delta: Mapping[str, str], *, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return event({**shared, "object": "chat.completion.chunk", "choices": [choice]})


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:8]
