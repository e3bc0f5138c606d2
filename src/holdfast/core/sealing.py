"""Texts that were encoded before they were stored, and are told apart from plain JSON by their first character.

So a codec can be introduced while jobs are there, and whoever has no codec, or the wrong key, can say so.
"""

from collections.abc import Callable

from holdfast.core import payload
from holdfast.core.errors import PayloadSealed

SEAL = "~"
"""No JSON text begins with it."""


def seal(text: str | None, encode: Callable[[str], str]) -> str | None:
    """Encode *text*, if there is any.

    >>> seal('"hello"', str.upper)
    '~"HELLO"'
    """
    return None if text is None else SEAL + encode(text)


def unseal(text: str | None, decode: Callable[[str], str]) -> str | None:
    """Decode *text* if it was encoded. One that cannot be decoded stays as it is: others are read all the same.

    What comes out has to be JSON as strict as what went in: a wrong key, or another writer, may give anything.

    >>> unseal('~"HELLO"', str.lower), unseal('"HELLO"', str.lower)
    ('"hello"', '"HELLO"')
    """
    if text is None or not text.startswith(SEAL):
        return text
    try:
        opened = decode(text[len(SEAL) :])
        payload.decode(opened, what="what the codec gave")  # what this refuses counts as not decoded
        return opened
    except Exception:  # noqa: BLE001 - a user's code, which may refuse a wrong key with anything
        return text


def is_sealed(text: str | None) -> bool:
    """Say whether *text* is encoded, and nobody here could decode it."""
    return text is not None and text.startswith(SEAL)


def ensure_open(text: str, what: str) -> None:
    """Refuse to take an encoded text for JSON. Raises `PayloadSealed`."""
    if text.startswith(SEAL):
        raise PayloadSealed(
            f"{what} is encoded, and this process cannot decode it; "
            "give Holdfast(codec=…) the codec, and the key, that it was written with"
        )
