"""Texts that callers pass are refused on entry if not every store can hold them."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Holdfast, HoldfastError, JobFilter
from holdfast.core.dead_letters.letter import LetterFilter
from holdfast.errors import PayloadInvalid

NUL, SURROGATE = "a\0b", "a\ud800b"
ID = str(uuid4())

Ask = Callable[[Holdfast, Any], Awaitable[object]]

DOORS: dict[str, Ask] = {
    "signal actor": lambda hold, text: hold.signal(ID, "go", actor=text),
    "signal owner": lambda hold, text: hold.signal(ID, "go", owner=text),
    "signal name": lambda hold, text: hold.signal(ID, text),
    "read owner": lambda hold, text: hold.read(ID, owner=text),
    "wait owner": lambda hold, text: hold.wait(ID, owner=text),
    "events owner": lambda hold, text: hold.events(ID, owner=text),
    "cancel owner": lambda hold, text: hold.cancel(ID, owner=text),
    "retry owner": lambda hold, text: hold.retry(ID, owner=text),
    "pause actor": lambda hold, text: hold.queues.pause("mail", actor=text),
    "pause reason": lambda hold, text: hold.queues.pause("mail", actor="ada", reason=text),
    "pause queue": lambda hold, text: hold.queues.pause(text, actor="ada"),
    "resume queue": lambda hold, text: hold.queues.resume(text, actor="ada"),
    "resume actor": lambda hold, text: hold.queues.resume("mail", actor=text),
    "accept actor": lambda hold, text: hold.accept_late(ID, actor=text),
    "accept reason": lambda hold, text: hold.accept_late(ID, actor="ada", reason=text),
    "provider actor": lambda hold, text: hold.providers.pause("model", actor=text),
    "provider reason": lambda hold, text: hold.providers.open("model", actor="ada", reason=text),
    "provider resume": lambda hold, text: hold.providers.resume("model", actor="ada", reason=text),
    "provider probe": lambda hold, text: hold.providers.probe("model", actor="ada", reason=text),
    "triage actor": lambda hold, text: hold.dead_letters.triage(ID, "data", actor=text),
    "triage reason": lambda hold, text: hold.dead_letters.triage(ID, "data", actor="ada", reason=text),
    "evidence": lambda hold, text: hold.dead_letters.remediate(ID, text, actor="ada"),
    "safe": lambda hold, text: hold.dead_letters.plan(ID, safe=text, actor="ada"),
    "notes": lambda hold, text: hold.dead_letters.close(ID, text, actor="ada"),
    "discard": lambda hold, text: hold.dead_letters.discard(ID, text, actor="ada"),
    "show owner": lambda hold, text: hold.dead_letters.show(ID, owner=text),
    "plan token": lambda hold, text: hold.dead_letters.progress(text),
    "replay actor": lambda hold, text: hold.dead_letters.replay(ID, actor=text),
    "stop reason": lambda hold, text: hold.dead_letters.stop(ID, actor="ada", reason=text),
}
REFUSAL = "NUL character|lone surrogate|printable text"


@pytest.mark.parametrize("text", [NUL, SURROGATE], ids=["nul", "surrogate"])
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
async def test_what_one_store_cannot_hold_is_refused_by_both(hold: Holdfast, door: Ask, text: str) -> None:
    hold.provider("model")

    with pytest.raises(HoldfastError, match=REFUSAL):
        await door(hold, text)

    assert await hold.runtime.store.queues.paused() == []


@pytest.mark.parametrize("text", [NUL, SURROGATE], ids=["nul", "surrogate"])
async def test_a_filter_is_refused_when_it_is_made(text: str) -> None:
    expected: dict[type[JobFilter] | type[LetterFilter], list[str]] = {
        JobFilter: ["name", "owner", "queue", "key", "subject"],
        LetterFilter: ["name", "queue", "owner", "error_class", "fingerprint", "stage", "plan"],
    }
    for kind, names in expected.items():
        for name in names:
            fields: dict[str, Any] = {name: text}
            with pytest.raises(PayloadInvalid, match=f"{name} holds"):
                kind(**fields)
