"""The routes of the provider, without faults."""

import json
from typing import NamedTuple, NoReturn
from urllib.parse import parse_qs, unquote

from holdfast_simulator.http import Answer, Head, error_answer, json_answer
from holdfast_simulator.ledger import Effect, Ledger
from holdfast_simulator.models import chat_completion, transcription
from holdfast_simulator.script import Script


class Work(NamedTuple):
    """The result of a call: its answer, the effect that it caused, and the first effect under its key."""

    answer: Answer
    effect_id: str | None = None
    duplicate_of: str | None = None


def perform(head: Head, body: bytes, ledger: Ledger, script: Script, *, now: float) -> Work:
    """Perform a call; its effect is in the ledger when this returns."""
    match head.method, head.path:
        case "POST", "/v1/chat/completions":
            return Work(chat_completion(body))
        case "POST", "/v1/audio/transcriptions":
            return Work(transcription(head, body))
        case "GET", "/effects":
            return Work(_search(head, ledger, script, now=now))
        case "GET", path if path.startswith("/effects/"):
            effect = ledger.get(path.removeprefix("/effects/"))
            return Work(effect.answer if effect else json_answer(404, {"error": {"code": "not_found"}}))
        case "POST", path if path.startswith("/effects/") and path != "/effects/":
            return _take_effect(head, body, ledger, script, now=now)
        case _:
            return Work(error_answer(404, "not_found", f"there is no route {head.route}"))


def effect_answer(effect_id: str, name: str, key: str | None, echo: bytes) -> Answer:
    """Build the answer that reports an effect; *echo* is the unchanged JSON of the request."""
    effect = json.dumps({"id": effect_id, "name": name, "key": key})
    return Answer(200, effect[:-1].encode() + b', "body": ' + echo + b"}")


def _take_effect(head: Head, body: bytes, ledger: Ledger, script: Script, *, now: float) -> Work:
    key = head.headers.get("idempotency-key")
    first = ledger.first(key)
    if first and (known := ledger.remembered(key, script, now=now)):
        replayed = Answer(known.answer.status, known.answer.body, headers={"Idempotent-Replayed": "true"})
        return Work(replayed, duplicate_of=first.id)
    if not is_json(body):
        return Work(error_answer(400, "invalid_request_error", "the body must be JSON"))
    name, effect_id = unquote(head.path.removeprefix("/effects/")), ledger.next_id()
    answer = effect_answer(effect_id, name, key, body.strip() or b"null")
    ledger.add(Effect(effect_id, name, key, now, answer))
    return Work(answer, effect_id, duplicate_of=first.id if first else None)


def _search(head: Head, ledger: Ledger, script: Script, *, now: float) -> Answer:
    keys = parse_qs(head.query).get("key")
    if not keys:
        return error_answer(400, "invalid_request_error", "look up with ?key=")
    found = ledger.visible(keys[0], script, now=now)
    return Answer(200, b'{"effects": [' + b", ".join(effect.answer.body for effect in found) + b"]}")


def is_json(body: bytes) -> bool:
    """Return whether a body is strict JSON in UTF-8; an empty one counts as null.

    >>> is_json(b'{"to": "ann"}'), is_json(b""), is_json(b"NaN"), is_json(b"[" * 100_000)
    (True, True, False, False)
    """
    if not body.strip():
        return True
    try:
        _STRICT.decode(body.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(parse_constant=_reject_constant)
