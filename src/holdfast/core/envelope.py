"""Texts that were encoded before they were stored, and differ from plain JSON in their first character.

So a codec can be introduced while jobs exist, and a process without the codec, or with a wrong key, can report it.
"""

from collections.abc import Callable

from holdfast.core import strict_json
from holdfast.core.errors import PayloadEncrypted

ENCODED_PREFIX = "~"
"""No JSON text begins with it."""


def wrap(text: str | None, encode: Callable[[str], str]) -> str | None:
    """Encode *text*, if there is any.

    >>> wrap('"hello"', str.upper)
    '~"HELLO"'
    """
    return None if text is None else ENCODED_PREFIX + encode(text)


def unwrap(text: str | None, decode: Callable[[str], str]) -> str | None:
    """Decode *text* if it was encoded. One that cannot be decoded is returned unchanged.

    The decoded text has to be strict JSON: a wrong key, or another writer, may result in any text.

    >>> unwrap('~"HELLO"', str.lower), unwrap('"HELLO"', str.lower)
    ('"hello"', '"HELLO"')
    """
    if text is None or not text.startswith(ENCODED_PREFIX):
        return text
    try:
        opened = decode(text[len(ENCODED_PREFIX) :])
        strict_json.decode(opened, what="what the codec gave")  # what this refuses counts as not decoded
        return opened
    except Exception:  # noqa: BLE001 - a user's code, which may raise anything for a wrong key
        return text


def is_encoded(text: str | None) -> bool:
    """Return whether *text* is encoded, and no codec here could decode it."""
    return text is not None and text.startswith(ENCODED_PREFIX)


def ensure_open(text: str, what: str) -> None:
    """Raise `PayloadEncrypted` if *text* is encoded, and so not JSON."""
    if text.startswith(ENCODED_PREFIX):
        raise PayloadEncrypted(
            f"{what} is encoded, and this process cannot decode it; "
            "give Holdfast(codec=…) the codec, and the key, that it was written with"
        )
