"""The texts of a failure: one line that may be shown, and a stack for operators.

Text is redacted before it is cut to its place, since half a secret is no longer recognised as one. What is written in
the code, the names of classes and the frames of a stack, is not: they hold no value, and would lose their meaning.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from holdfast.core.errors import HoldfastError
from holdfast.core.failures import frames
from holdfast.core.failures.evidence import links, names
from holdfast.core.failures.frames import SourceReader

LINE_LIMIT = 500
STACK_LIMIT = 8_000
MOST_NOTES = 100

_NAME = r"[^\s/\\'\"`<>,;]"
_ROOT = (
    rf"(?:file:/{{1,4}}+|(?<![\w~])~(?!\d)[\w.-]{{0,64}}+/|(?<![\w./])\.{{1,2}}+/|(?<!\w)[A-Za-z]:[\\/](?!/)"
    rf"|(?<![\w\\])\\{{2,4}}+{_NAME}{{1,255}}+\\|(?<![\w/.#~])/{{1,4}}+{_NAME}{{1,255}}+\\?/)"
)
"""How a path begins. One name after a slash is not a path, and neither is a slash within a word, a date or a fraction."""
_ADDRESS = r"(?<![\w+.-])(?!file:)[A-Za-z][\w+.-]{1,31}+://[^/\s'\"<>,;)](?:[^\s'\"<>,;)]|\)(?=/))*+"
_ROUTE = r"(?:\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)|\bwith url:) /[^\s'\"<>,;)]*+"
_PATH = re.compile(
    rf"(?P<kept>{_ADDRESS}|{_ROUTE})"
    rf"|(?P<quote>[\"'`])(?={_ROOT})(?:(?!(?P=quote))[^\n])++(?P=quote)"
    rf"|{_ROOT}(?:[^\s'\"`<>,;():.]|[:.](?![\s'\"`<>,;()]|\Z)|[()](?=\.?\w))*+"
)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def one_line(error: BaseException, redact: Callable[[str], str]) -> str:
    """Return what *error* says on one line of at most 500 characters: no secret, no path, no traceback.

    >>> one_line(FileNotFoundError(2, "No such file or directory", "/srv/in/a.pdf"), redact=str)
    'FileNotFoundError: No such file or directory'
    """
    text = _redacted_text(error, redact).partition("Traceback (most recent call last)")[0]
    flat = " ".join(_PATH.sub(_hidden, _printable(text)).split())
    line = flat if len(flat) <= LINE_LIMIT else flat[: LINE_LIMIT - 1] + "…"
    return line or type(error).__name__


def stack(
    error: BaseException, redact: Callable[[str], str], read_source: SourceReader = frames.no_source
) -> str:
    """Return the application's frames that led to *error* and to its causes, the first cause first.

    No local variables, no literals, no frames of libraries. At most 8,000 characters, of which the last ones are
    kept.
    """
    parts: list[str] = []
    room = STACK_LIMIT
    for link in links(error):  # the last first: as soon as they fill the stack, nothing else is redacted
        notes = (redact(note) for note in _notes(link))
        trace = "\n".join([*frames.render(link, read_source), _redacted_text(link, redact), *notes])
        parts.insert(0, _printable(trace))
        room -= len(parts[0]) + 1
        if room < 0:
            break
    text = "\n".join(parts)
    return text if len(text) <= STACK_LIMIT else "…" + text[1 - STACK_LIMIT :]


def text_length(error: BaseException) -> int:
    """Return the length of the texts of *error*, of its causes and of their notes."""
    return sum(len(text) for link in links(error) for text in (_said(link), *_notes(link)))


def _redacted_text(error: BaseException, redact: Callable[[str], str]) -> str:
    name = type(error).__name__
    said = redact(_said(error))
    if isinstance(error, HoldfastError):
        return said or name
    return f"{name}: {said}" if said else name


def _said(error: BaseException) -> str:
    try:
        return _without_input(error) or _without_filename(error) or str(error)
    except Exception:  # noqa: BLE001 - a foreign __str__ may do anything
        return ""


def _without_input(error: BaseException) -> str | None:
    """Return what pydantic found wrong, and where, without the value: payloads stay out of messages."""
    errors = getattr(error, "errors", None)
    if "pydantic_core.ValidationError" not in names(type(error)) or errors is None:
        return None
    found = (one for one in errors() if isinstance(one, Mapping))
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)


def _without_filename(error: BaseException) -> str | None:
    return error.strerror if isinstance(error, OSError) and error.filename is not None else None


def _notes(error: BaseException) -> Iterator[str]:
    notes = getattr(error, "__notes__", None)
    return islice((note for note in notes or () if isinstance(note, str)), MOST_NOTES)


def _hidden(found: re.Match[str]) -> str:
    """Return the replacement of a path; an address of the network and the route of a request stay."""
    quote = found["quote"] or ""
    return found["kept"] or f"{quote}<path>{quote}"


def _printable(text: str) -> str:
    """Drop characters that a database or a terminal rejects; line ends and tabs stay."""
    return _UNPRINTABLE.sub("", text)
