"""Strict JSON: what passes here is stored unchanged by every store.

Refused alike everywhere: NaN and infinities, NUL characters, lone surrogates, naive
datetimes, integers of thousands of digits, values nested too deeply, objects that have a key
twice, and values that JSON cannot hold.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from json import encoder
from pathlib import PurePath
from typing import Any, NoReturn
from uuid import UUID

from holdfast.core.errors import PayloadInvalid, PayloadTooLarge

DEFAULT_LIMIT = 1_000_000
MAX_DEPTH = 100
_SCALARS = frozenset({str, int, float, bool, type(None)})


def encode(value: Any, *, what: str, limit: int = DEFAULT_LIMIT) -> str:
    """Write *value* as strict JSON of at most *limit* bytes.

    *what* names the value in the refusal, for example "argument of job 'review'".

    >>> encode({"n": 1, "name": "é"}, what="argument")
    '{"n":1,"name":"é"}'
    """
    try:
        text = _encoded(value)
        size = len(text) if text.isascii() else len(text.encode())
    except PayloadInvalid as refusal:
        raise PayloadInvalid(f"{what} {refusal}") from None
    except UnicodeEncodeError:
        raise PayloadInvalid(f"{what} holds a lone surrogate; send text that is valid Unicode") from None
    except RecursionError:
        raise PayloadInvalid(f"{what} is nested too deeply; at most {MAX_DEPTH} levels are kept") from None
    except (ValueError, TypeError) as error:
        raise PayloadInvalid(f"{what} cannot be written as strict JSON: {error}") from None

    if size > limit:
        raise PayloadTooLarge(
            f"{what} has {size:,} bytes, the limit is {limit:,}; store it elsewhere and pass a reference"
        )
    # An escaped backslash before "u0000" is harmless text, so a match is checked again without those.
    if "\\u0000" in text and "\\u0000" in text.replace("\\\\", ""):
        raise PayloadInvalid(f"{what} holds a NUL character, which PostgreSQL cannot store; remove it")
    if size > MAX_DEPTH:  # each level takes a bracket
        _refuse_depth(text, what)
    if type(value) not in _SCALARS and _has_other_keys(value):
        decode(text, what=what)  # {1: …, "1": …} has two keys, and its JSON the same one twice
    return text


def decode(text: str | bytes, *, what: str) -> Any:
    """Read JSON that comes from outside: a command line, a file, an archive, a codec.

    An object that has a key twice is refused: one of its two values would be dropped silently, and readers differ in which. Raises `PayloadInvalid`, whose message begins with *what* and quotes no value.

    >>> decode('{"n": 1}', what="the file")
    {'n': 1}
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except PayloadInvalid as refusal:
        raise PayloadInvalid(f"{what} {refusal}") from None
    except RecursionError:
        raise PayloadInvalid(f"{what} is nested too deeply; at most {MAX_DEPTH} levels are kept") from None
    except UnicodeDecodeError:
        raise PayloadInvalid(f"{what} is not JSON: it is not UTF-8") from None
    except ValueError as error:
        raise PayloadInvalid(f"{what} is not JSON: {error}") from None


def ensure_storable(**texts: str | None) -> None:
    """Raise `PayloadInvalid` for a text, given by its name, that not every store can hold.

    >>> ensure_storable(actor="ada", reason=None)
    """
    for what, text in texts.items():
        if text is None:
            continue
        if not isinstance(text, str):
            raise PayloadInvalid(f"{what} must be text, not a {type(text).__name__}")
        if "\0" in text:
            raise PayloadInvalid(f"{what} holds a NUL character, which PostgreSQL cannot store; remove it")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PayloadInvalid(f"{what} holds a lone surrogate; send text that is valid Unicode") from None


def fingerprint(text: str) -> str:
    """Return the same text for equal JSON values, independent of the order of their keys.

    >>> fingerprint('{"a":1,"b":2}') == fingerprint('{"b":2,"a":1}')
    True
    """
    canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise PayloadInvalid(f"has the key {twice[:50]!r} twice in one object; give it once")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise PayloadInvalid(f"holds {name}, which is not JSON")


def _has_other_keys(value: Any) -> bool:
    """Return whether some dictionary in *value* has keys that are not plain text."""
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                return True
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    for inner in value:  # noqa: SIM110 - a generator would cost as much as the encoding
        # Most are no containers, and the call would cost more than the look.
        if type(inner) not in _SCALARS and _has_other_keys(inner):
            return True
    return False


def _refuse_depth(text: str, what: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    level = [json.loads(text)]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]
    if level:
        raise PayloadInvalid(f"{what} is nested too deeply; at most {MAX_DEPTH} levels are kept")


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _plain(value: Any) -> Any:  # noqa: PLR0911 - one return per kind of value reads as a table
    """Turn a value that JSON does not know into one that it does."""
    match value:
        case datetime():
            if value.tzinfo is None:
                raise PayloadInvalid("holds a datetime without a time zone; use an aware one")
            return value.isoformat()
        case date() | time() | UUID() | Decimal() | PurePath():
            return str(value)
        case timedelta():
            return value.total_seconds()
        case Enum():
            return value.value
        case set() | frozenset():
            return list(value)
        case bytes():
            return value.decode()
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {entry.name: getattr(value, entry.name) for entry in fields(value)}
    raise TypeError(f"a {type(value).__name__} is not JSON; annotate the parameter, or convert it first")


def _make_encoder() -> Callable[[Any], str]:
    """Make the encoder once: the standard library's makes another for every value, at twice the cost."""
    options: dict[str, Any] = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    c_make_encoder = getattr(encoder, "c_make_encoder", None)
    if c_make_encoder is None:
        return json.JSONEncoder(**options, default=_plain, check_circular=False).encode
    chunks = c_make_encoder(None, _plain, encoder.encode_basestring, None, ":", ",", False, False, False)  # noqa: FBT003 - positional only
    return lambda value: "".join(chunks(value, 0))


_encoded = _make_encoder()
