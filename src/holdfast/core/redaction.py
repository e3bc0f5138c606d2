"""The one place through which text leaves the process: messages, stack traces, log lines, dead letters.

What a service or a user wrote may hold anything. Whatever of it is stored, logged or shown passes through a `Redact`
first, before it is shortened: half a secret is no longer recognised as one.

A `Redactor` finds secrets and personal data by their shape and puts a tag in their place: what it was, and a short
keyed hash by which equal values can be told to be equal. Without the key nobody can find out the value by trying.
Text is also read as it would be after unescaping, up to four times over: what a URL or a JSON string within a JSON
string hides from a pattern, it does not hide from whoever reads the log.
"""

import hmac
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.core.patterns import PATTERNS, Pattern

__all__ = ["FAILED", "LONGEST", "TOO_LONG", "Pattern", "Redact", "Redactor", "printable"]

Redact = Callable[[str], str]

LONGEST = 1 << 20
FAILED = "[redaction failed]"
TOO_LONG = "[too long to redact]"

CONTEXT_LIMIT = 200

_LAYERS = 4
_HIDDEN = "\ue000"
_TAG = re.compile(r"\[[a-z]{2,16}:[0-9a-f]{8}…\]")


def _utf8(mark: str) -> str:
    """Match one character beyond ASCII whose bytes were escaped one by one."""
    tail = mark + "[89abAB][0-9A-Fa-f]"
    return (
        f"{mark}[cCdD][0-9A-Fa-f]{tail}|{mark}[eE][0-9A-Fa-f](?:{tail}){{2}}|{mark}[fF][0-7](?:{tail}){{3}}"
    )


_ESCAPE = re.compile(
    _utf8("%") + "|" + _utf8(r"\\x") + "|"
    r"%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[\\\"'/bfnrt]|&(?:quot|amp|lt|gt|apos|#39|#34|#64);"
)
_MEANING = {
    **{"\\b": "\b", "\\f": "\f", "\\n": "\n", "\\r": "\r", "\\t": "\t"},
    **{"&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">", "&apos;": "'"},
    **{"&#39;": "'", "&#34;": '"', "&#64;": "@"},
}


class _Find(NamedTuple):
    """Where something was found in the text as it was given, and what it is."""

    start: int
    end: int
    rank: int
    kind: str
    value: str


class Redactor:
    """Takes secrets and personal data out of text, in time linear to its length.

    *key* keeps the tags from being guessed, *patterns* are looked for before the library's own, and *allowed* names
    the fields that a job may `note`.

    It fails closed. Text that cannot be redacted is replaced by a mark as a whole, and so is text of more than a
    million characters: cut first, it might end in half a secret, and what it hides would take long to find.

    >>> redactor = Redactor(b"k")
    >>> redactor("mail ada@example.org about it")
    'mail [email:348da1b5…] about it'
    >>> redactor('{"to": "ada%40example.org", "attempt": 2}')
    '{"to": "[email:348da1b5…]", "attempt": 2}'
    """

    def __init__(
        self, key: bytes = b"", patterns: Iterable[Pattern] = (), allowed: Iterable[str] = ()
    ) -> None:
        self._key = key
        self._patterns = (*patterns, *PATTERNS)
        self._allowed = frozenset(allowed)

    def rekey(self, key: bytes) -> None:
        """Take *key* from now on: a store's own key is known only after it was opened."""
        self._key = key

    def __call__(self, text: str) -> str:
        try:
            return TOO_LONG if len(text) > LONGEST else self._redacted(printable(text))
        except Exception:  # noqa: BLE001 - whatever went wrong, text that was not redacted goes nowhere
            return FAILED

    def context(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Keep of *fields* the allowed ones, as scalars, redacted and of at most 200 characters.

        >>> Redactor(b"k", allowed=["course", "week"]).context({"course": "c1", "essay": "Once upon a time", "week": 3})
        {'course': 'c1', 'week': 3}
        """
        known = ((name, value) for name, value in fields.items() if name in self._allowed)
        return {name: self._scalar(value) for name, value in known if _is_scalar(value)}

    def payload_hash(self, text: str) -> str:
        """Give a keyed hash by which equal payloads can be told to be equal.

        >>> Redactor(b"k").payload_hash('{"essay":"Once"}')
        'd5fef17e040353a2'
        """
        return self._hash(text)[:16]

    def _redacted(self, text: str) -> str:
        pieces, at = [], 0
        for start, end, _, kind, value in _merged(self._finds(text)):
            pieces += [text[at:start], f"[{kind}:{self._hash(value)[:8]}…]"]
            at = end
        return "".join(pieces) + text[at:]

    def _finds(self, text: str) -> Iterator[_Find]:
        for rank, (layer, origins) in enumerate(reversed(list(_layers(text)))):
            for start, end, kind in self._seen(layer):
                yield _Find(origins[start], origins[end], rank, kind, layer[start:end])

    def _seen(self, text: str) -> list[tuple[int, int, str]]:
        """List what the patterns see in *text*; what one has seen is blank to the next."""
        seen: list[tuple[int, int, str]] = []
        text = _TAG.sub(lambda tag: _HIDDEN * len(tag[0]), text)
        for pattern in self._patterns:

            def hide(match: re.Match[str], pattern: Pattern = pattern) -> str:
                group = pattern.group
                value = match[group]
                if not value.strip(_HIDDEN) or not pattern.holds(value):
                    return match[0]
                start, end = match.span(group)
                seen.append((start, end, pattern.kind))
                whole, at = match[0], match.start()
                return whole[: start - at] + _HIDDEN * (end - start) + whole[end - at :]

            text = pattern.shape.sub(hide, text)
        return seen

    def _scalar(self, value: Any) -> Any:
        plain = str(value)
        told = self(plain)
        return value if told == plain and not isinstance(value, str) else told[:CONTEXT_LIMIT]

    def _hash(self, value: str) -> str:
        return hmac.digest(self._key, value.encode("utf-8", "surrogatepass"), "sha256").hex()


def printable(text: str) -> str:
    """Return *text* without control characters: one could forge a log line, or move a cursor.

    >>> printable("line one\\x1b[2J")
    'line one[2J'
    """
    if text.isprintable():
        return text
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _merged(finds: Iterable[_Find]) -> Iterator[_Find]:
    """Join what overlaps. Of its parts the one that was read deepest gives its name: it is closest to the value."""
    joined: _Find | None = None
    for find in sorted(finds):
        if joined is None or find.start >= joined.end:
            if joined is not None:
                yield joined
            joined = find
        else:
            best = min(joined, find, key=lambda one: one.rank)
            joined = best._replace(start=joined.start, end=max(joined.end, find.end))
    if joined is not None:
        yield joined


def _layers(text: str) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield *text*, then what it reads once unescaped, and so on, with the place from which each character came."""
    origins: Sequence[int] = range(len(text) + 1)
    yield text, origins
    for _ in range(_LAYERS):
        if _ESCAPE.search(text) is None:
            return
        text, steps = _unescaped(text)
        origins = [origins[step] for step in steps]
        yield text, origins


def _unescaped(text: str) -> tuple[str, list[int]]:
    pieces: list[str] = []
    steps: list[int] = []
    at = 0
    for escape in _ESCAPE.finditer(text):
        pieces += [text[at : escape.start()], _meaning(escape[0])]
        steps += range(at, escape.start() + 1)
        at = escape.end()
    pieces.append(text[at:])
    steps += range(at, len(text) + 1)
    return "".join(pieces), steps


def _meaning(escape: str) -> str:
    if len(escape) > 6 or (escape[0] == "%" and len(escape) > 3):
        return bytes.fromhex(re.sub(r"%|\\x", "", escape)).decode("utf-8", "replace")[:1]
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    if escape[1] in "ux":
        return chr(int(escape[2:], 16))
    return _MEANING.get(escape, escape[1:])
