"""The words of a failure: one line that may be shown, and a stack for operators."""

import linecache
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel

from holdfast.core.errors import Retryable
from holdfast.core.failures import message
from holdfast.core.failures.message import LINE_LIMIT, STACK_LIMIT, one_line, text_length
from holdfast.core.redaction import Redactor
from tests.unit.secrets_corpus import CORPUS, Secret

stack = partial(message.stack, read_source=linecache.getlines)


class ShopError(Exception):
    """An exception of an application."""


class MuteError(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no")


class Form(BaseModel):
    """Something to validate."""

    name: str
    marks: list[int]


def caught(act: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - whatever it is, it is looked at
        act()
    return raised.value


@pytest.mark.parametrize(
    ("error", "rendered"),
    [
        (ShopError("sold out"), "ShopError: sold out"),
        (ShopError(), "ShopError"),
        (Retryable("the index is being rebuilt"), "the index is being rebuilt"),
        (Retryable(), "Retryable"),
        (Retryable(" \n"), "Retryable"),
        (MuteError(), "MuteError"),
        (ShopError("a\x00b\x1b[2J\tc\nd"), "ShopError: ab[2J c d"),
        (BlockingIOError(11, "try again"), "BlockingIOError: [Errno 11] try again"),
        (BlockingIOError(11, "try again", "/srv/a.pdf"), "BlockingIOError: try again"),
        (ShopError("see /tmp/a b, (/home/x) and C:\\x"), "ShopError: see <path> b, (<path>) and <path>"),
        (ShopError("and/or 1/2 https://x.test/tmp/a"), "ShopError: and/or 1/2 https://x.test/tmp/a"),
    ],
    ids=repr,
)
def test_an_error_is_rendered_in_one_line(error: BaseException, rendered: str) -> None:
    assert one_line(error, str) == rendered


@pytest.mark.clause("FAIL-3", "messages")
@pytest.mark.parametrize(
    ("said", "rendered"),
    [
        ("cannot open /run/secrets/db", "cannot open <path>"),
        ("/workspace/ada/in.pdf and /uploads/ada.pdf", "<path> and <path>"),
        ("no file at:/home/ada/x.pdf", "no file at:<path>"),
        ("a=/etc/passwd, b>/dev/null", "a=<path>, b><path>"),
        ("PATH=/usr/bin:/usr/local/bin", "PATH=<path>"),
        ("file:///home/ada/x.pdf is missing", "<path> is missing"),
        ("file:/C:/x.pdf", "<path>"),
        ("sqlite:////home/ada/jobs.db and unix:///run/x.sock", "sqlite:<path> and unix:<path>"),
        ("~/x.pdf, ~ada/x.pdf, ../x.pdf and ./x.pdf", "<path>, <path>, <path> and <path>"),
        (r"\\server\share\x, C:\x and D:/x/y", "<path>, <path> and <path>"),
        (r"'\\\\server\\share\\x y' and 'C:\\a b\\c'", "'<path>' and '<path>'"),
        ("//server/share/x", "<path>"),
        ("'/home/ada lovelace/x y.pdf' is gone", "'<path>' is gone"),
        ('"/home/ada lovelace/x" or `/srv/a b/c`', '"<path>" or `<path>`'),
        ("b'/home/ada/x'", "b'<path>'"),
        ("open '/home/ada and more", "open '<path> and more"),
        ("/home/ada/x(1).pdf: no such file.", "<path>: no such file."),
        ("[Errno 2]/home/ada/x.pdf", "[Errno 2]<path>"),
        (r'{"at": "\/home\/ada\/x"}', r'{"at": "\<path>"}'),
        ("(see /home/ada/x.pdf).", "(see <path>)."),
        ("https://x.test/a,/home/ada/x", "https://x.test/a,<path>"),
    ],
)
def test_a_line_holds_no_path(said: str, rendered: str) -> None:
    assert one_line(Retryable(said), str) == rendered


@pytest.mark.parametrize(
    "said",
    [
        "and/or, 1/2, 12/2026, 16/11/2026, TLS/SSL, N/A, 3 / 4 / 5, +/- 3/4, ~5/10 km/h",
        "https://x.test/home/ada?next=/home/ada, s3://bucket/home/x, redis://cache.test/0",
        "jdbc:postgresql://db.test/shop and https://x.test/a_(b)/c/d",
        "postgresql://[login:12345678…]@db.test/shop",
        "POST /v1/essays/42 answered 500",
        "Max retries exceeded with url: /v1/essays/42 (Caused by it)",
        "application/json and arn:aws:s3:::bucket/key/x and #/components/schemas/Pet",
        "<b>x</b><br/> 10.0.0.0/8 .../x /healthz",
    ],
)
def test_what_is_no_path_is_kept(said: str) -> None:
    assert one_line(Retryable(said), str) == said


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "/",
            "/a",
            "/a/",
            " /a",
            "'/a/b ",
            "\"'`/a/b",
            "a://",
            "a",
            "a.",
            "://a",
            "~",
            " ~a",
            "~/",
            "../",
            "C:\\",
        ),
        *("\\", "\\\\a", " \\\\a\\", "file:/", "GET /", "with url: /", "/a/b:", "/a/b.", "/a/b(", "(/a/b)"),
    ],
)
def test_four_times_the_text_takes_about_four_times_as_long(unit: str) -> None:
    def cost(length: int) -> float:
        error = Retryable((unit * length)[:length])
        start = process_time()
        one_line(error, str)
        return process_time() - start

    costs = [(cost(20_000), cost(80_000)) for _ in range(3)]

    assert min(slow for _, slow in costs) < 12 * min(quick for quick, _ in costs)


def test_a_line_ends_where_the_first_quoted_traceback_begins() -> None:
    quoted = "Traceback (most recent call last):\n  File ...\n"

    assert one_line(ShopError(f"first\n{quoted}then\n{quoted}"), str) == "ShopError: first"


def test_what_pydantic_found_is_rendered_with_its_places_and_without_the_values() -> None:
    error = caught(lambda: Form.model_validate({"name": 7, "marks": [1, "secret"]}))

    assert one_line(error, str) == (
        "ValidationError: name: Input should be a valid string; "
        "marks.1: Input should be a valid integer, unable to parse string as an integer"
    )


def test_errors_that_another_library_carries_are_not_taken_for_those_of_pydantic() -> None:
    error = ShopError("two problems")
    error.errors = lambda: []  # type: ignore[attr-defined]  # as careless libraries do

    assert one_line(error, str) == "ShopError: two problems"


def test_what_calls_itself_a_validation_error_and_has_no_list_is_rendered_in_its_own_words() -> None:
    kind = type("ValidationError", (Exception,), {"__module__": "pydantic_core._pydantic_core"})

    assert one_line(kind("wrong"), str) == "ValidationError: wrong"


def test_a_line_is_cut_after_five_hundred_characters() -> None:
    longest = Retryable("x" * LINE_LIMIT)

    assert one_line(longest, str) == "x" * LINE_LIMIT
    assert one_line(Retryable("x" * (LINE_LIMIT + 1)), str) == "x" * (LINE_LIMIT - 1) + "…"


def test_a_line_is_redacted_before_it_is_cut() -> None:
    rendered = one_line(
        Retryable("x" * (LINE_LIMIT - 3) + "secret"), lambda text: text.replace("secret", "***")
    )

    assert rendered == "x" * (LINE_LIMIT - 3) + "***"


def fall(depth: int) -> NoReturn:
    if depth == 0:
        raise ShopError("bottom")
    fall(depth - 1)


def jump() -> NoReturn:
    fall(0)


def test_a_stack_is_the_path_through_the_application_and_then_the_line() -> None:
    error = caught(jump)

    rendered = stack(error, str).split("\n")

    assert rendered[2:] == [
        f"  tests/unit/test_message.py:{jump.__code__.co_firstlineno + 1} in jump",
        "    fall(0)",
        f"  tests/unit/test_message.py:{fall.__code__.co_firstlineno + 2} in fall",
        "    raise ShopError('…')",
        "ShopError: bottom",
    ]


def test_of_many_frames_the_last_forty_are_rendered() -> None:
    def start() -> NoReturn:
        fall(39)

    near, far = stack(caught(lambda: fall(38)), str), stack(caught(start), str)

    assert "in <lambda>" in near
    assert "in start" not in far
    assert "raise ShopError('…')" in far


def test_notes_are_rendered_each_on_its_line() -> None:
    error = ShopError("sold out")
    error.add_note("ordered twice")
    error.add_note("by Ada")

    assert stack(error, str) == "ShopError: sold out\nordered twice\nby Ada"


@pytest.mark.parametrize("notes", [None, [7, None], ()])
def test_notes_that_are_no_text_are_left_out(notes: Any) -> None:
    error = ShopError("sold out")
    error.__notes__ = notes

    assert stack(error, str) == "ShopError: sold out"


def test_of_a_long_stack_the_last_eight_thousand_characters_are_kept() -> None:
    room = STACK_LIMIT - len("ShopError: ")

    assert stack(ShopError("x" * room), str) == "ShopError: " + "x" * room
    assert stack(ShopError("x" * STACK_LIMIT), str) == "…" + "x" * (STACK_LIMIT - 1)


def test_what_a_database_would_choke_on_is_left_out_of_a_stack() -> None:
    assert stack(ShopError("a\x00b\x1bc\ud800d\te\nf"), str) == "ShopError: abcd\te\nf"


def test_causes_are_rendered_before_what_they_led_to() -> None:
    error, cause, root = ShopError("third"), ShopError("second"), ShopError("first")
    error.__cause__, cause.__cause__ = cause, root

    assert stack(error, str) == "ShopError: first\nShopError: second\nShopError: third"


def test_what_was_being_handled_is_rendered_unless_it_was_declared_irrelevant() -> None:
    error = ShopError("second")
    error.__context__ = ShopError("first")

    assert stack(error, str) == "ShopError: first\nShopError: second"
    error.__suppress_context__ = True
    assert stack(error, str) == "ShopError: second"


def test_every_member_of_a_group_is_rendered_with_its_cause_and_none_twice() -> None:
    left, right = ShopError("left"), ShopError("right")
    left.__cause__ = right.__cause__ = ShopError("shared")

    rendered = stack(ExceptionGroup("both", [left, right]), str).split("\n")

    assert rendered == [
        "ShopError: shared",
        "ShopError: right",
        "ShopError: left",
        "ExceptionGroup: both (2 sub-exceptions)",
    ]


def test_of_a_long_chain_the_last_twenty_links_are_rendered() -> None:
    error = ShopError("1")
    for number in range(2, 31):
        outer = ShopError(str(number))
        outer.__cause__ = error
        error = outer

    assert stack(error, str).split("\n") == [f"ShopError: {number}" for number in range(11, 31)]


def test_of_many_notes_the_first_hundred_are_rendered() -> None:
    error = ShopError("sold out")
    for number in range(1_000):
        error.add_note(str(number))

    assert stack(error, str).split("\n") == ["ShopError: sold out", *map(str, range(100))]


def test_what_does_not_fit_into_a_stack_is_not_even_redacted() -> None:
    redacted: list[str] = []
    members = [ShopError(f"{number} {'x' * 5_000}") for number in range(10)]

    rendered = stack(ExceptionGroup("all", members), lambda text: redacted.append(text) or text)  # type: ignore[func-returns-value]

    assert len(rendered) == STACK_LIMIT
    assert redacted == ["all (10 sub-exceptions)", str(members[0]), str(members[1])]


def test_the_length_of_an_error_is_that_of_all_that_led_to_it() -> None:
    error, cause = ShopError("four"), ShopError("seven")
    error.__cause__ = cause
    cause.add_note("ten")

    assert text_length(error) == len("fourseventen")
    assert text_length(MuteError()) == 0


def test_the_name_of_a_class_is_never_taken_for_that_of_a_secret() -> None:
    kind = type("TokenError", (Exception,), {})

    assert one_line(kind("signature has expired"), Redactor(b"k")) == "TokenError: signature has expired"
    assert stack(kind("signature has expired"), Redactor(b"k")) == "TokenError: signature has expired"


each_secret = pytest.mark.parametrize("secret", CORPUS, ids=lambda secret: secret.name)


@pytest.mark.clause("DLQ-2")
@pytest.mark.clause("FAIL-3", "messages")
@each_secret
def test_a_line_holds_no_secret(secret: Secret) -> None:
    assert secret.value not in one_line(ShopError(secret.text), Redactor(b"k"))


@pytest.mark.clause("DLQ-2")
@each_secret
def test_a_stack_holds_no_secret_of_causes_contexts_notes_and_members(secret: Secret) -> None:
    member, cause, context = (ShopError(secret.text) for _ in range(3))
    member.__cause__, cause.__context__ = cause, context
    member.add_note(f"sent: {secret.text}")
    group = ExceptionGroup(f"all of {secret.text}", [member])

    rendered = stack(group, Redactor(b"k"))

    assert secret.value not in rendered
    assert rendered.count("ShopError") == 3


@pytest.mark.clause("DLQ-2")
@each_secret
@pytest.mark.parametrize("inside", [4, 9])
def test_a_secret_at_the_cut_of_a_line_leaves_no_half(secret: Secret, inside: int) -> None:
    begins = secret.text.index(secret.value)
    filler = "so it went " * 50
    start = LINE_LIMIT - len("ShopError: ") - begins - inside - 1

    rendered = one_line(ShopError(filler[: start - 1] + " " + secret.text), Redactor(b"k"))

    assert len(rendered) <= LINE_LIMIT
    assert not rendered.removesuffix("…").endswith(secret.value[:inside])
    assert secret.value[:12] not in rendered


@pytest.mark.clause("DLQ-2")
@each_secret
@pytest.mark.parametrize("inside", [4, 9])
def test_a_secret_at_the_cut_of_a_stack_leaves_no_half(secret: Secret, inside: int) -> None:
    rest = len(secret.text) - secret.text.index(secret.value) - inside
    filler = ("\n" + "so it went " * 800)[: STACK_LIMIT - rest]

    rendered = stack(ShopError(secret.text + filler), Redactor(b"k"))

    assert len(rendered) <= STACK_LIMIT
    assert secret.value[-12:] not in rendered


class BrokenLoader:
    """A loader that cannot show the source of what it imports."""

    def get_source(self, name: str) -> str:
        raise ValueError(name)


def test_source_that_cannot_be_read_leaves_the_place_and_the_words() -> None:
    module = {"__name__": "odd", "__loader__": BrokenLoader(), "ShopError": ShopError}
    exec(compile("def act():\n    raise ShopError('sold out')", "odd.py", "exec"), module)

    error = caught(module["act"])  # type: ignore[arg-type]  # it was just defined

    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    assert stack(error, str) == "  odd.py:2 in act\nShopError: sold out"
