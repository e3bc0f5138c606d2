"""What a traceback says about the application: where it was, and not with which values."""

import asyncio
import json
import linecache
import tokenize
from collections.abc import Callable
from functools import partial
from textwrap import dedent
from typing import Any

import pytest

from holdfast.core.durations import duration
from holdfast.core.failures import frames
from holdfast.core.failures.frames import MOST_FRAMES, _literals, location, without_literals

render = partial(frames.render, read_source=linecache.getlines)


def caught(act: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - whatever it is, it is looked at
        act()
    error = raised.value
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def defined(source: str, *, file: str, module: str, **names: Any) -> Callable[..., Any]:
    """Return the function `act` of a module that stands in *file*."""
    space: dict[str, Any] = {"__name__": module} | names
    exec(compile(dedent(source), file, "exec"), space)
    act: Callable[..., Any] = space["act"]
    return act


def fail() -> None:
    raise LookupError("nothing there")


INSTALLED = "/srv/venv/lib/python3.11/site-packages"


class Filer:
    """A class with a method."""

    def file(self) -> None:
        fail()


def test_frames_of_the_standard_library_are_counted() -> None:
    def parse() -> object:
        return json.loads("{")

    lines = render(caught(parse))

    assert [line.split(":")[0].strip() for line in lines] == [
        "tests/unit/test_frames.py",
        "… 3 frames of other libraries",
    ]


def test_frames_of_this_library_are_counted() -> None:
    assert render(caught(lambda: duration("later")))[-1].strip().endswith("of other libraries")


def test_one_frame_is_counted_as_one() -> None:
    library = defined("def act(call): call()", file=f"{INSTALLED}/lib/a.py", module="lib.a")

    lines = render(caught(lambda: library(fail)))

    assert lines[1] == "  … 1 frame of other libraries"
    assert "in fail" in lines[2]


def test_frames_without_an_end_are_reported_from_the_inside() -> None:
    def dig() -> None:
        dig()

    lines = render(caught(dig))

    assert len(lines) == MOST_FRAMES


def test_a_place_is_the_innermost_frame_of_the_application() -> None:
    library = defined("def act(text): int(text)", file=f"{INSTALLED}/lib/a.py", module="lib.a")

    def call() -> None:
        library("x")

    assert location(caught(call)) == "tests.unit.test_frames:call"
    assert location(caught(Filer().file)) == "tests.unit.test_frames:fail"


def test_a_place_names_a_method_with_its_class() -> None:
    error = caught(Filer().file)
    first = error.__traceback__
    assert first is not None
    first.tb_next = None

    assert location(error) == "tests.unit.test_frames:Filer.file"


def test_a_place_of_a_coroutine_is_found_behind_the_event_loop() -> None:
    async def wait() -> None:
        await asyncio.wait_for(asyncio.Event().wait(), 0)

    assert location(caught(lambda: asyncio.run(wait()))) == "tests.unit.test_frames:wait"


def an_installed_job() -> Callable[[], Any]:
    deep = defined("def act(): raise LookupError", file=f"{INSTALLED}/lib/a.py", module="lib.a")
    return defined("def act(): deep()", file=f"{INSTALLED}/shop/jobs.py", module="shop.jobs", deep=deep)


def test_an_application_that_was_installed_is_known_by_the_first_frame_after_the_librarys() -> None:
    job = an_installed_job()
    error = caught(
        defined("def act(): job()", file="a.py", module="holdfast.engine.execution.attempt", job=job)
    )

    assert location(error) == "shop.jobs:act"
    assert render(error) == [
        "  … 1 frame of other libraries",
        "  shop/jobs.py:1 in act",
        "  … 1 frame of other libraries",
    ]


def test_what_a_library_met_and_handled_within_itself_is_not_taken_for_the_application() -> None:
    error = caught(an_installed_job())

    assert location(error) == ""
    assert render(error) == ["  … 2 frames of other libraries"]


def test_an_error_that_was_never_raised_or_only_in_libraries_has_no_place() -> None:
    error = caught(lambda: json.loads("{"))
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next

    assert location(LookupError()) == location(error) == ""


@pytest.mark.clause("DLQ-2")
@pytest.mark.parametrize(
    ("file", "module", "short"),
    [
        ("/home/ada/shop/jobs.py", "shop.jobs", "shop/jobs.py"),
        ("/home/ada/run.py", "__main__", "run.py"),
        ("/home/ada/shop/__init__.py", "shop", "shop/__init__.py"),
        ("/home/ada/a/b/c/d.py", "a.b.c.d", "b/c/d.py"),
        ("C:\\Users\\ada\\shop\\jobs.py", "shop.jobs", "shop/jobs.py"),
        ("<string>", "shop.jobs", "<string>"),
    ],
)
def test_a_file_is_named_below_the_folder_it_was_imported_from(file: str, module: str, short: str) -> None:
    act = defined("def act(): raise LookupError", file=file, module=module)

    assert render(caught(act)) == [f"  {short}:1 in act"]


@pytest.mark.clause("DLQ-2")
@pytest.mark.parametrize(
    ("source", "line", "left"),
    [
        ("call('a', \"b\", b'c', r'd', 12, 1.5j)", 1, "call('…', '…', '…', '…', 0, 0)"),
        ("call(f'a {secret!r} b')", 1, "call('…')"),
        ("x = 1  # the key is abc", 1, "x = 0"),
        ("call(a, '''one\n  two\nthree''', b)", 1, "call(a, '…'"),
        ("call(a, '''one\n  two\nthree''', b)", 2, "'…'"),
        ("call(a, '''one\n  two\nthree''', b)", 3, "'…', b)"),
        ("call(\n  'a',\n  b)", 2, "'…',"),
        ("raise Sold(name, reason=why)", 1, "raise Sold(name, reason=why)"),
    ],
)
def test_source_is_shown_without_its_literals(source: str, line: int, left: str) -> None:
    assert without_literals(tuple(source.splitlines(keepends=True)))[line] == left


@pytest.mark.parametrize("source", ["call('a", "Dear $name, the key is 'abc", "if x:\n    a\n  b\n", "'''"])
def test_source_that_is_no_python_is_refused(source: str) -> None:
    with pytest.raises((SyntaxError, tokenize.TokenError)):
        without_literals(tuple(source.splitlines(keepends=True)))


def test_a_formatted_string_in_many_tokens_is_one_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.12 and later read it: one string within another."""
    kinds = {900: "FSTRING_START", 901: "FSTRING_MIDDLE", 902: "FSTRING_END"}
    monkeypatch.setattr(tokenize, "tok_name", tokenize.tok_name | kinds)
    read = [900, 901, tokenize.NUMBER, 900, 901, 902, 902, tokenize.NUMBER]
    tokens = [tokenize.TokenInfo(kind, "?", (1, at), (1, at + 1), "") for at, kind in enumerate(read)]

    assert list(_literals(tokens)) == [((1, 0), (1, 7), "'…'"), ((1, 7), (1, 8), "0")]


def test_a_template_and_a_very_long_file_are_shown_without_source(tmp_path: Any) -> None:
    source = "def act(): raise LookupError\n"
    template, long, plain = tmp_path / "mail.html", tmp_path / "long.py", tmp_path / "plain.py"
    template.write_text(source)
    long.write_text(source + "\n" * 10_000)
    plain.write_text(source)

    lines = [
        render(caught(defined(source, file=str(file), module="shop"))) for file in (template, long, plain)
    ]

    assert lines == [
        ["  mail.html:1 in act"],
        ["  long.py:1 in act"],
        ["  plain.py:1 in act\n    def act(): raise LookupError"],
    ]


def test_without_a_reader_of_source_a_frame_is_shown_by_its_place_alone() -> None:
    act = defined("def act(): raise LookupError", file="/srv/shop/jobs.py", module="shop.jobs")

    assert frames.render(caught(act)) == ["  shop/jobs.py:1 in act"]
