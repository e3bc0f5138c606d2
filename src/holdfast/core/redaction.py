"""The one place through which text leaves the process: messages, stack traces, log lines, dead letters.

What a service or a user wrote may hold anything, and be of any length. All of it that is stored, logged or shown passes
through a `Redact` first, which bounds the text before it looks for secrets: the work is the same for a text of 8,000
characters and for one of a gigabyte. `beginning` and `_last_lines` say why the cut leaves no half of a secret.

A `Redactor` finds secrets and personal data by their shape and puts a tag in their place: what it was, and a short
keyed hash by which equal values can be recognised. Without the key the value cannot be found by trying.
Text is also read as it would be after unescaping, up to four times over: what a URL or a JSON string within a JSON
string hides from a pattern, it does not hide from a reader of the log.
"""

import hmac
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.core.secret_patterns import PATTERNS, Pattern

__all__ = ["FAILED", "LEFT_OUT", "LONGEST", "Pattern", "Redact", "RedactionCache", "Redactor", "printable"]

Redact = Callable[[str], str]

LONGEST = 8_000
"""Characters of a text that are examined. Of a longer one the beginning and the last lines are kept."""
FAILED = "[redaction failed]"
LEFT_OUT = "[left out]"

CONTEXT_LIMIT = 200

_HEAD = 4_000
_MARGIN = 1_000
"""Characters after the head in which a secret may end that begins in it; no pattern needs more to know one."""
_TAIL = LONGEST - _HEAD - _MARGIN
_TOP_LEVEL_LINE = re.compile(r"\n(?=[^\s\])}\\%&])")
_ARMOURED_LINES = re.compile(
    r"(?:[A-Za-z0-9+/=]{16,}+[ \t\r]*+(?:\n|\Z))++(?:[A-Za-z0-9+/=]++[ \t\r]*+(?:\n|\Z))?+"
)
_ARMOUR_ENDS = "-----END"

_LAYERS = 4
_HIDDEN = "\ue000"
_TAG = re.compile(r"\[[a-z]{2,16}:[0-9a-f]{8}…\]")


def _utf8(prefix: str) -> str:
    """Match one character beyond ASCII whose bytes were escaped one by one."""
    tail = prefix + "[89abAB][0-9A-Fa-f]"
    return f"{prefix}[cCdD][0-9A-Fa-f]{tail}|{prefix}[eE][0-9A-Fa-f](?:{tail}){{2}}|{prefix}[fF][0-7](?:{tail}){{3}}"


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

    Of text of more than 8,000 characters, the first 4,000 are kept and up to 3,000 of its last lines, with a mark
    between them that says how much was left out. It fails closed: text that cannot be redacted is replaced by a mark.

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
            if len(text) <= LONGEST:
                return self._redacted(printable(text))
            last = _last_lines(text)
            notice = f"\n[{len(text) - _HEAD - len(last):,} characters left out]\n"
            return self.beginning(text, _HEAD) + notice + self._redacted(printable(last))
        except Exception:  # noqa: BLE001 - text that was not redacted is never returned, after any error
            return FAILED

    def beginning(self, text: str, most: int) -> str:
        """Redact the first *most* characters of *text*, and drop the others.

        They are read with a margin behind them, so that a secret on the cut is seen as a whole and replaced as one. Fails
        closed, too.
        """
        try:
            clean = printable(text[: most + _MARGIN])
            # If the text goes on, the margin is kept in full, also where characters were left out before it.
            whole = len(text) <= most + _MARGIN
            return self._redacted(clean, until=most if whole else max(0, min(most, len(clean) - _MARGIN)))
        except Exception:  # noqa: BLE001 - as above
            return FAILED

    def context(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Keep of *fields* the allowed ones, as scalars, redacted and of at most 200 characters.

        >>> Redactor(b"k", allowed=["course", "week"]).context({"course": "c1", "essay": "Once upon a time", "week": 3})
        {'course': 'c1', 'week': 3}
        """
        known = ((name, value) for name, value in fields.items() if name in self._allowed)
        return {name: self._scalar(value) for name, value in known if _is_scalar(value)}

    def payload_hash(self, text: str) -> str:
        """Return a keyed hash by which equal payloads can be recognised.

        >>> Redactor(b"k").payload_hash('{"essay":"Once"}')
        'd5fef17e040353a2'
        """
        return self._hash(text)[:16]

    def _redacted(self, text: str, until: int | None = None) -> str:
        """Replace what is found in *text*; of what begins at *until* or later, nothing is given back."""
        pieces, at, until = [], 0, len(text) if until is None else until
        for start, end, _, kind, value in _merged(self._finds(text)):
            if start >= until:
                break
            pieces += [text[at:start], f"[{kind}:{self._hash(value)[:8]}…]"]
            at = end
        return "".join(pieces) + text[at:until]

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

            text = pattern.expression.sub(hide, text)
        return seen

    def _scalar(self, value: Any) -> Any:
        try:
            plain = str(value)
        except ValueError:  # Python writes no number of more than 4,300 digits
            return FAILED
        redacted = self.beginning(plain, CONTEXT_LIMIT)
        return value if redacted == plain and not isinstance(value, str) else redacted[:CONTEXT_LIMIT]

    def _hash(self, value: str) -> str:
        return hmac.digest(self._key, value.encode("utf-8", "surrogatepass"), "sha256").hex()


class RedactionCache:
    """Redacts each text of one failure once, however often it is passed, and a bounded number of characters in total.

    A group of exceptions may hold thousands of texts, and a stack keeps 8,000 characters: the others are not examined.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._known: dict[str, str] = {}
        self._left = 2 * LONGEST

    def __call__(self, text: str) -> str:
        if text not in self._known:
            self._left -= min(len(text), LONGEST)
            self._known[text] = self._redact(text) if self._left >= 0 else LEFT_OUT
        return self._known[text]


def printable(text: str) -> str:
    """Return *text* without control characters: one could forge a log line, or move a cursor.

    >>> printable("line one\\x1b[2J")
    'line one[2J'
    """
    if text.isprintable():
        return text
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


def _last_lines(text: str) -> str:
    """Return the last lines of a long *text*, from one on which no secret goes on that began before.

    A value ends with its line, or with the lines indented below it; only armoured keys go on in lines of their own.
    Where no line begins at the margin, as in JSON, nothing shows whether a part of it belongs to a secret: none is kept.
    """
    begins = _TOP_LEVEL_LINE.search(text, len(text) - _TAIL)
    if begins is None:
        return ""
    tail = text[begins.end() :]
    armour = tail.find(_ARMOUR_ENDS)
    if armour >= 0 and "-----BEGIN" not in tail[:armour]:
        tail = tail[armour:].partition("\n")[2]
    armoured = _ARMOURED_LINES.match(tail)
    return tail if armoured is None else tail[armoured.end() :]


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
