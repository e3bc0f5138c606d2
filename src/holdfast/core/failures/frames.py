"""What a traceback says about the application: where it was, and not with which values.

Frames of the standard library, of installed packages and of Holdfast itself are counted, not rendered. An application
that was itself installed as a package is recognised by the first frame after Holdfast's: it calls only application code.

A line of source is rendered without its literals: they may be keys and addresses.
"""

import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby
from types import FrameType
from typing import Any

MOST_FRAMES = 40

_MOST_LINES = 5_000
"""Longer source is not shown: reading it takes 12 µs a line, for which an event loop may have to wait."""
_LOCATION_LIMIT = 200
_STANDARD_LIBRARY = tokenize.__file__.removesuffix("tokenize.py")
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]")

Frame = tuple[FrameType, int]
Position = tuple[int, int]
SourceReader = Callable[[str, dict[str, Any]], Sequence[str]]
"""Returns the lines of a source file, given its name and the globals of its module: `linecache.getlines`, for example."""


def no_source(file: str, module_globals: dict[str, Any]) -> Sequence[str]:
    """Return no line: stacks are rendered without source."""
    return ()


def render(error: BaseException, read_source: SourceReader = no_source) -> list[str]:
    """Return the last forty of the application's frames, each with its line of source; the others are only counted."""
    frames = list(_frames(error))
    lines: list[Callable[[], str]] = []
    for ours, group in groupby(frames, _ownership(frames)):
        run = list(group)
        lines += (
            [partial(_render_frame, entry, read_source) for entry in run]
            if ours
            else [partial(_render_count, len(run))]
        )
    return [line() for line in lines[-MOST_FRAMES:]]


def location(error: BaseException) -> str:
    """Return the innermost frame of the application as `module:function`, empty if there is none.

    Without a line number: the same failure has the same location after the next deployment.
    """
    frames = list(_frames(error))
    ours = filter(_ownership(frames), reversed(frames))
    return next((f"{_module(frame)}:{_function(frame)}"[:_LOCATION_LIMIT] for frame, _ in ours), "")


def _frames(error: BaseException) -> Iterator[Frame]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame, step.tb_lineno
        step = step.tb_next


def _ownership(frames: Sequence[Frame]) -> Callable[[Frame], bool]:
    """Return a predicate for the application's frames."""
    others = [frame for frame, _ in frames if not _is_platform(frame)]
    called_from_here = bool(frames) and _package(frames[0][0]) == "holdfast"
    if called_from_here and others and all(map(_is_installed, others)):
        application = _package(others[0])
        return lambda entry: not _is_platform(entry[0]) and _package(entry[0]) == application
    return lambda entry: not _is_platform(entry[0]) and not _is_installed(entry[0])


def _is_platform(frame: FrameType) -> bool:
    """Whether *frame* belongs to Python or to this library."""
    standard = _file(frame).startswith((_STANDARD_LIBRARY, "<frozen ")) and not _is_installed(frame)
    return standard or _package(frame) == "holdfast"


def _is_installed(frame: FrameType) -> bool:
    return _INSTALLED.search(_file(frame)) is not None


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _function(frame: FrameType) -> str:
    return frame.f_code.co_qualname.rpartition("<locals>.")[2]


def _render_count(number: int) -> str:
    return f"  … {number} {'frame' if number == 1 else 'frames'} of other libraries"


def _render_frame(entry: Frame, read_source: SourceReader) -> str:
    frame, line_number = entry
    where = f"  {_short(_file(frame), _module(frame))}:{line_number} in {frame.f_code.co_name}"
    source = _source(frame, line_number, read_source)
    return f"{where}\n    {source}" if source else where


def _short(file: str, module: str) -> str:
    """Return the path below the folder from which *module* was imported: what is above it belongs to the machine.

    >>> _short("/srv/app/shop/jobs.py", "shop.jobs"), _short("/srv/run.py", "__main__")
    ('shop/jobs.py', 'run.py')
    """
    parts = re.split(r"[\\/]", file)
    depth = 1 + module.count(".") + (parts[-1] == "__init__.py")
    return "/".join(parts[-min(depth, 3) :])


def _source(frame: FrameType, line_number: int, read_source: SourceReader) -> str:
    if not _file(frame).endswith(".py"):
        return ""  # a template, or generated code: where its literals begin is unknown
    try:
        lines = read_source(_file(frame), frame.f_globals)
        return without_literals(tuple(lines)).get(line_number, "") if len(lines) <= _MOST_LINES else ""
    except Exception:  # noqa: BLE001 - source that cannot be read must not hide the failure
        return ""


@lru_cache(maxsize=64)
def without_literals(source: tuple[str, ...]) -> dict[int, str]:
    """Return the lines of *source* by their number, text and numbers replaced, comments dropped.

    Raises `SyntaxError` or `tokenize.TokenError` for source that is not Python.

    >>> without_literals(("connect('db.test', port=5432)  # the old one",))
    {1: "connect('…', port=0)"}
    """
    lines = dict(enumerate(source, 1))
    for start, end, instead in reversed(list(_literals(tokenize.generate_tokens(iter(source).__next__)))):
        head, tail = lines[start[0]][: start[1]], lines[end[0]][end[1] :]
        for between in range(start[0], end[0] + 1):
            lines[between] = instead
        lines[start[0]] = head + instead + (tail if start[0] == end[0] else "")
        if start[0] != end[0]:
            lines[end[0]] = instead + tail
    return {number: line.strip() for number, line in lines.items()}


def _literals(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[tuple[Position, Position, str]]:
    """Yield where literals and comments begin and end, and what to write instead.

    From Python 3.12 on, a formatted string is many tokens, and may hold another.
    """
    begun: list[Position] = []
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if kind == "ERRORTOKEN":
            raise SyntaxError("not Python: the positions of its literals are unknown")
        if kind.endswith("STRING_START"):
            begun.append(token.start)
        elif kind.endswith("STRING_END"):
            start = begun.pop()
            if not begun:
                yield start, token.end, "'…'"
        elif not begun and kind in _INSTEAD:
            yield token.start, token.end, _INSTEAD[kind]


_INSTEAD = {"STRING": "'…'", "NUMBER": "0", "COMMENT": ""}
