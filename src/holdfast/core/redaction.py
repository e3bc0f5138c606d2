"""The one place through which text leaves the process: messages, stack traces, log lines.

What a service or a user wrote may hold anything. Whatever of it is stored, logged or shown
passes through a `Redact` first, before it is shortened.
"""

from collections.abc import Callable

Redact = Callable[[str], str]


def redact(text: str) -> str:
    """Return *text* without what nobody else should read.

    Control characters are dropped, so that no text can forge a log line or move a cursor.

    >>> redact("line one\\x1b[2J")
    'line one[2J'
    """
    return "".join(character for character in text if character.isprintable() or character in "\n\t")
