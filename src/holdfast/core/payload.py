"""The strict JSON gate: what passes here is stored unchanged by every store.

Refused alike everywhere: NaN and infinities, NUL characters, lone surrogates, naive
datetimes, integers of thousands of digits, values nested too deeply, and values that JSON
cannot hold.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from json import encoder
from pathlib import PurePath
from typing import Any
from uuid import UUID

from holdfast.core.errors import PayloadInvalid, PayloadTooLarge

DEFAULT_LIMIT = 1_000_000
MAX_DEPTH = 100


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
    _refuse_nul(text, what)
    _refuse_depth(text, what)
    return text


def fingerprint(text: str) -> str:
    """Give equal texts for equal JSON values, whatever the order of their keys.

    >>> fingerprint('{"a":1,"b":2}') == fingerprint('{"b":2,"a":1}')
    True
    """
    canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _refuse_nul(text: str, what: str) -> None:
    # An escaped backslash before "u0000" is harmless text, so a hit is looked at again without those.
    if "\\u0000" in text and "\\u0000" in text.replace("\\\\", ""):
        raise PayloadInvalid(f"{what} holds a NUL character, which PostgreSQL cannot store; remove it")


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
            return _aware(value).isoformat()
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


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise PayloadInvalid("holds a datetime without a time zone; use an aware one")
    return value


def _make_encoder() -> Callable[[Any], str]:
    """Make the encoder once: the standard library's makes another for every value, at twice the cost."""
    options: dict[str, Any] = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    c_make_encoder = getattr(encoder, "c_make_encoder", None)
    if c_make_encoder is None:
        return json.JSONEncoder(**options, default=_plain, check_circular=False).encode
    chunks = c_make_encoder(None, _plain, encoder.encode_basestring, None, ":", ",", False, False, False)  # noqa: FBT003 - positional only
    return lambda value: "".join(chunks(value, 0))


_encoded = _make_encoder()
