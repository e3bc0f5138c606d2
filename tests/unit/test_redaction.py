"""What leaves the process holds no secret and no personal data, can forge no log line and can still be read."""

import json
import re
import time
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.redaction import FAILED, LEFT_OUT, LONGEST, RedactionCache, Redactor, printable
from holdfast.core.secret_patterns import Pattern
from tests.unit.secrets_corpus import ARMOUR, BODY, CORPUS, END, HEX, WORD, Secret

KEY = b"the key of one store"
TAG = re.compile(r"\[[a-z]+:[0-9a-f]{8}…\]")

each_secret = pytest.mark.parametrize("secret", CORPUS, ids=lambda secret: secret.name)


@pytest.mark.parametrize("text", ["", "plain", "two\nlines\tand a tab", "é 🜁 'quoted' \\x1b"])
def test_what_can_be_read_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(st.text())
def test_no_control_character_is_left_but_line_ends_and_tabs(text: str) -> None:
    left = printable(text)

    assert left.replace("\n", "").replace("\t", "").isprintable()
    assert [one for one in text if one in left] == list(left)


@pytest.mark.clause("DLQ-2")
@pytest.mark.parametrize("mail", ["åda@exämple.org", "アダ@例え.jp", "𐐷da@x.org"])
def test_letters_beyond_ascii_are_read_when_their_bytes_are_escaped_one_by_one(mail: str) -> None:
    redactor, plain = Redactor(KEY), Redactor(KEY)(mail)

    assert redactor(repr(mail.encode())) == f"b'{plain}'"
    assert redactor(quote(mail)) == plain


def test_the_corpus_holds_many_kinds_and_each_value_stands_in_its_text() -> None:
    assert len(CORPUS) >= 60
    assert len({secret.name for secret in CORPUS}) == len(CORPUS)
    assert all(secret.value in secret.text for secret in CORPUS)


@pytest.mark.clause("DLQ-2")
@each_secret
def test_a_secret_is_replaced_by_a_tag(secret: Secret) -> None:
    redacted = Redactor(KEY)(secret.text)

    assert secret.value not in redacted
    assert TAG.search(redacted)


@pytest.mark.clause("DLQ-2")
@each_secret
def test_no_revealing_part_of_a_secret_is_left(secret: Secret) -> None:
    redacted = Redactor(KEY)(secret.text)

    parts = [part for part in re.split(r"[\s:=;,.@/\"']+", secret.value) if len(part) >= 6]
    assert [
        part for part in parts if part in redacted and part not in secret.text.replace(secret.value, "")
    ] == []


@pytest.mark.clause("DLQ-2")
@each_secret
@pytest.mark.parametrize(
    "around",
    [
        lambda text: json.dumps({"body": text}),
        lambda text: json.dumps({"body": json.dumps({"inner": text})}),
        lambda text: repr(text.encode()),
        lambda text: repr({"body": text}),
        lambda text: f"first line\n{text}\nlast line",
        lambda text: f"({text})",
    ],
    ids=["JSON", "JSON in JSON", "bytes", "dictionary", "lines", "brackets"],
)
def test_a_secret_is_found_in_whatever_it_is_wrapped(secret: Secret, around: Any) -> None:
    redacted = Redactor(KEY)(around(secret.text))

    assert secret.value not in redacted
    assert around(secret.value)[1:-1] not in redacted


@pytest.mark.clause("DLQ-2")
@each_secret
def test_what_was_redacted_stays_as_it_is(secret: Secret) -> None:
    redactor = Redactor(KEY)
    redacted = redactor(secret.text)

    assert redactor(redacted) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-16T11:51:56.123456+02:00",
        "16/11/2026 and 01.02.2026 and 01-02-2026 at 11:51:56",
        "job 550e8400-e29b-41d4-a716-446655440000",
        "job 01JCXYZABCDEF0123456789ABC",
        "python 3.11.4, holdfast 1.2.3, v1.2.3.4",
        "holdfast.core.redaction.Redactor in re_compile_what_is_looked_for",
        "TestCase2WithAVeryLongCamelCaseNameForClarity",
        "took 12.5 s of 60s, 100% of 1,234,567 rows",
        "cannot connect to localhost:8080 nor 127.0.0.1:5432 nor [::1]:80",
        "HTTP 503 Service Unavailable, retry-after: 20",
        "[Errno 111] Connection refused",
        "attempt 3 of 5; limit=100",
        "max_tokens: 4096, {'prompt_tokens': 12, 'total_tokens': 30}",
        "maximum context length is 8192 tokens",
        "order 00012345 at 1760000000000 is 3.141592653589793",
        "see https://api.example.org/v1/essays/42",
        "claude-3-5-sonnet-20241022 and gpt-4o-mini-2024-07-18",
        "req_011CSHoEeqs5C35K2UUqR7Fy",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "invalid literal for int() with base 10: 'abc'",
        "Unexpected token < in JSON at position 0",
        "bearer authentication failed, and so did Basic authentication",
        "std::vector in arn:aws:s3:::bucket/key",
        "lodash@4.17.21 in eu-central-1",
        "the key is missing, and each has a key of its own: donkey_key",
        "monkey: 3, keyboard=qwertz, api keyword: x, hotkey=F1",
        "primary key: id, idempotency key: order-7, missing key: name",
        "primary_key=id, idempotency_key: order-7, Idempotency-Key: order-7, partitionKey=eu, sort_key_id: 3",
        "KeyError: 'name', key: order-7 and key=order-7",
        'duplicate key value violates unique constraint "users_email_key"',
        "tokens=[], passwords: {}, secrets = ( )",
        "docker run -u 1000:1000 -p 8080:80, mkdir -p src, mysql -p -u root",
        "actions/checkout@v4, ada/repo@main, library/redis@sha256:7 and and/or@2",
        "phone: unknown, hotel: 12345678, cell: B7, telephone_verified_at: 2026-11-16",
        "trace 4bf92f3577b34da6a3ce929d0e0e4736 of 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        f"image sha256:{HEX * 2}, sha256={HEX * 2} and sha256: {HEX * 2}",
        f"the number {2**200}, and the word {'ab' * 21}",
        "commit 9f4111111111111111b86d081884c7d659a2feaa",
        "meta-llama/Meta-Llama-3-1-70B-Instruct-Turbo in HTTP2ConnectionPoolForIPv6AndIPv4Addresses",
        "/v1/Organizations/7/Users/12/Essays/42/Grades/8",
        "card 4111 1111 1111 1112 and DE88370400440532013000 are mistyped",
        "password authentication failed, password expired. the password is wrong, password must be changed",
        "password is too short: it was 8, and the passphrase was not given",
        "bypass: 12, compass=N, encompass: 3, author: ada, assign: 7, design=3, assassin: 1, session: 3 of 4",
        "exit code: 137, error code is 500, status code: 404, the seed=42, state=open, design_pattern=7",
        "PASS tests/unit/test_a.py::test_b, AUTH PLAIN LOGIN, LOGIN failed for ada, redis:7@sha256:12",
        "it costs $5 or $6, docker run -p 8080:80, mongod --port 27017, at 10:30 @ home",
        "999.1.1.1 is no address, and 1:2:3 neither",
    ],
)
def test_what_is_no_secret_is_kept(text: str) -> None:
    assert Redactor(KEY)(text) == text


def test_what_stands_around_a_secret_is_kept() -> None:
    redacted = Redactor(KEY)("GET https://ada:pw@x.test/v1?id=7#top for ada@example.org answered 500")

    assert TAG.sub("*", redacted) == "GET https://*@x.test/v1?id=*#top for * answered 500"


def test_equal_values_have_equal_tags_however_they_are_written() -> None:
    redacted = Redactor(KEY)('ada@example.org ada%40example.org "ada\\u0040example.org" bob@example.org')

    first, encoded, escaped, other = TAG.findall(redacted)
    assert first == encoded == escaped != other


def test_another_key_gives_other_tags() -> None:
    redactor = Redactor()
    without = redactor("to ada@example.org")
    redactor.rekey(KEY)

    assert redactor("to ada@example.org") == Redactor(KEY)("to ada@example.org") != without
    assert TAG.search(without)


@pytest.mark.clause("DLQ-2")
def test_control_characters_hide_no_secret() -> None:
    assert WORD not in Redactor(KEY)("pass\x00wo\u200brd\x1b=" + WORD)


@pytest.mark.parametrize("fake", ["[email:", "[", "\ue000", "[secret:00000000…]x"])
def test_what_looks_like_a_tag_hides_no_secret(fake: str) -> None:
    assert WORD not in Redactor(KEY)(f"password={fake}{WORD}")


def test_a_users_own_pattern_is_looked_for_first() -> None:
    student = Pattern("student", re.compile("student (?P<value>[0-9]{7})"))

    redacted = Redactor(KEY, [student])("student 1234567, mail ada@example.org")

    assert [tag[1:-1].partition(":")[0] for tag in TAG.findall(redacted)] == ["student", "email"]


@pytest.mark.clause("DLQ-2")
def test_text_that_cannot_be_redacted_is_replaced_as_a_whole() -> None:
    def broken(value: str) -> bool:
        raise RuntimeError(value)

    trap = Pattern("trap", re.compile("sold"), broken)

    assert Redactor(KEY, [trap])(f"sold out, password={WORD}") == FAILED
    assert Redactor(KEY)(None) == FAILED  # type: ignore[arg-type]  # as careless code does


@pytest.mark.clause("DLQ-2")
def test_of_a_long_text_the_beginning_and_the_last_lines_are_kept() -> None:
    lines = [f"line {number}" for number in range(100_000)]

    redacted = Redactor(KEY)("\n".join(lines)).split("\n")

    mark = next(line for line in redacted if "left out" in line)
    head, tail = redacted[: redacted.index(mark)], redacted[redacted.index(mark) + 1 :]
    assert head[:-1] == lines[: len(head) - 1]
    assert tail == lines[-len(tail) :]
    assert 2_500 < len("\n".join(tail)) <= 3_000
    assert len("\n".join(head)) == 4_000
    left_out = int(mark[1:].split()[0].replace(",", ""))
    assert left_out + 4_000 + len("\n".join(tail)) == len("\n".join(lines))


def test_text_of_the_longest_length_is_redacted_as_a_whole() -> None:
    redactor = Redactor(KEY, [Pattern("all", re.compile("x+"))])

    assert TAG.fullmatch(redactor("x" * LONGEST))
    assert TAG.sub("*", redactor("x" * (LONGEST + 1))) == "*\n[4,001 characters left out]\n"


FILLER = "so it went on and on\n" * 50_000


@pytest.mark.clause("DLQ-2")
@each_secret
def test_a_text_that_is_cut_begins_like_the_one_that_is_redacted_as_a_whole(secret: Secret) -> None:
    redactor, begins = Redactor(KEY), secret.text.index(secret.value)
    whole, long = redactor(f"{secret.text}\n!"), f"{secret.text}\n!{FILLER[: 4 * LONGEST]}"

    for cut in range(begins + 1, begins + len(secret.value)):
        redacted = redactor.beginning(long, cut)

        assert whole.startswith(redacted)
        assert redacted.endswith("…]")


@pytest.mark.clause("DLQ-2")
@each_secret
def test_a_secret_on_the_cut_before_the_last_lines_leaves_no_part(secret: Secret) -> None:
    parts = [part for part in re.split(r"[\s:=;,.@/\"']+", secret.value) if len(part) >= 6]

    for left in (2_999 - len(secret.text) + secret.text.index(secret.value), 2_999 - len(secret.text), 2_998):
        redacted = Redactor(KEY)(FILLER + secret.text + "\n" + FILLER[:left])

        assert [part for part in parts if part in redacted] == []


@pytest.mark.clause("DLQ-2")
@pytest.mark.parametrize(
    "text",
    [
        f"x {ARMOUR}\n" + f"{BODY}\n" * 200 + f"q9==\n{END}\n" + FILLER[:100],
        f"x {ARMOUR}\n" + f"{BODY}\n" * 200 + "q9==",
        f"x {ARMOUR}\nDEK-Info: AES-256-CBC,{HEX}\n\n" + f"{BODY}\n" * 40 + f"{END}\n" + FILLER[:100],
        f"Cookie: {BODY * 200}",
        f"[parameters: ('{WORD}', {'7, ' * 5_000}'{WORD}')]\n",
        f"row contains ({'7, ' * 5_000}{WORD})\n",
        '{"passwords": {\n' + f'  "bob": "{WORD}",\n' * 1_000 + "}}",
        '{"passwords": {' + f'"bob": "{WORD}", ' * 1_000 + "}}",
        f"password={WORD * 2_000}",
        f'password="{(WORD + " ") * 2_000}"',
        f"password=[\n\\t'{WORD}',\n" + f"\\t'{WORD}',\n" * 1_000 + "]",
    ],
    ids=[
        *("key", "key without an end", "encrypted key", "cookie", "parameters", "row"),
        *("indented JSON", "JSON", "word", "words", "escaped indentation"),
    ],
)
def test_no_part_is_left_of_a_secret_that_is_longer_than_what_is_kept(text: str) -> None:
    for before in (FILLER, "", FILLER[:7_000]):
        redacted = Redactor(KEY)(before + text)

        assert WORD not in redacted
        assert BODY[8:24] not in redacted
        assert HEX not in redacted


@pytest.mark.clause("DLQ-2")
def test_a_secret_that_begins_among_the_last_lines_is_found() -> None:
    redacted = Redactor(KEY)(f"{FILLER}{ARMOUR}\n{BODY}\n{END}\nto ada@example.org")

    assert BODY not in redacted
    assert TAG.sub("*", redacted).endswith("*\nto *")


def test_each_text_of_a_failure_is_redacted_once_and_not_without_end() -> None:
    looked_at: list[str] = []
    redact = RedactionCache(lambda text: looked_at.append(text) or text[:3])  # type: ignore[func-returns-value]

    redacted = [redact(text) for text in ("first", "first", "x" * LONGEST, "y" * 10 * LONGEST, "z")]

    assert redacted == ["fir", "fir", "xxx", LEFT_OUT, LEFT_OUT]
    assert looked_at == ["first", "x" * LONGEST]


SLOW = [
    *("a", "aB3/", "0 ", "00", "0.", "0:", "4111 ", "DE89 ", "+1 ", "(0", "fe80:", "\n"),
    *("eyJ", "eyJ-", "-----BEGIN ", "-----BEGIN A-----", "sk-", "SG.", "12345678:AA"),
    *("@", "a@", "a@a.", "://", "a://", "://a:", "://a@", "?", "a=a&"),
    *("password=", 'password="', "password", "--password ", "--a-", "[password: ", "token: (", "x-"),
    *("Authorization: ", "Bearer a", "cookie: ", "<Cookie ", "row contains (", ")=("),
    *(
        "openai_key",
        "api key ",
        "aKey",
        "password" + " " * 40,
        "password=[[[[[[",
        "password=]",
        "password=a('",
    ),
    *("token: [", "token: {'", 'token: ("\\"', "token:[\n ", 'password={"\\"', "auth('a',", "auth('"),
    *("-u ", "-u a", "-u 1", "sshpass -p", "mysql ", "mysql -p", "a/a@", "a/"),
    *("phone: 1", "phone ", "card_4", "0a", "aB3-", "sha256:0a"),
    *("\\", '\\"', '\\\\"', "%25", "%40", "&amp;", "[email:", "\ue000", ":", "{'"),
]


def cost(redactor: Redactor, text: str) -> float:
    start = time.process_time()
    redactor.beginning(text, len(text))
    return time.process_time() - start


def growth(unit: str, length: int, *, turns: int = 2, patterns: tuple[Pattern, ...] = ()) -> float:
    """How many times longer a text of four times *length* takes; each is measured at its best, in turns."""
    redactor = Redactor(KEY, patterns)
    short, long = ((unit * (size // len(unit) + 1))[:size] for size in (length, 4 * length))
    costs = [(cost(redactor, short), cost(redactor, long)) for _ in range(turns)]
    return min(slow for _, slow in costs) / min(quick for quick, _ in costs)


@pytest.mark.parametrize("unit", SLOW)
def test_four_times_the_text_takes_about_four_times_as_long(unit: str) -> None:
    assert growth(unit, 4_000) < 12


@pytest.mark.parametrize("unit", ["password=", "eyJ-"])
def test_a_megabyte_takes_about_four_times_as_long_as_a_quarter_of_it(unit: str) -> None:
    assert growth(unit, 250_000, turns=1) < 12


def test_a_pattern_that_is_not_linear_would_be_noticed() -> None:
    slow = Pattern("slow", re.compile(r"[^\x01]*[^\x01]*\x01"))

    assert growth("a", 200, patterns=(slow,)) > 12


@pytest.mark.parametrize("length", [9_000, 1_000_000])
@pytest.mark.parametrize("unit", ["a", "a b\n", "password=a\n"])
def test_no_text_is_long_enough_to_be_more_work_than_eight_thousand_characters(
    unit: str, length: int
) -> None:
    looked_at: list[str] = []
    count = Pattern("any", re.compile(".", re.DOTALL), lambda one: bool(looked_at.append(one)))  # type: ignore[func-returns-value]

    Redactor(KEY, [count], allowed=["order"])((unit * length)[:length])
    assert len(looked_at) <= LONGEST

    looked_at.clear()
    Redactor(KEY, [count], allowed=["order"]).context({"order": (unit * length)[:length]})
    assert len(looked_at) <= 1_200


@pytest.mark.clause("DLQ-2")
def test_a_context_keeps_allowed_fields_and_scalars_alone() -> None:
    fields = {
        "course": "c1",
        "share": 0.5,
        "week": 3,
        "teacher": None,
        "grade": float("nan"),
        "pages": ["1.2"],
        "prompt": "Once upon a time",
        "locals": {"password": WORD},
    }
    redactor = Redactor(KEY, allowed=["course", "share", "week", "teacher", "grade", "pages"])

    assert redactor.context(fields) == {"course": "c1", "share": 0.5, "week": 3}
    assert Redactor(KEY).context(fields) == {}


@pytest.mark.clause("DLQ-2")
def test_a_context_is_redacted_before_it_is_cut() -> None:
    redactor = Redactor(KEY, allowed=["card", "course"])

    context = redactor.context({"course": "x" * 190 + " ada@example.org", "card": 4111111111111111})

    assert len(context["course"]) == 200
    assert context["course"].startswith("x" * 190 + " [email:")
    assert TAG.fullmatch(context["card"])


def test_a_number_that_cannot_be_written_is_not_kept() -> None:
    assert Redactor(KEY, allowed=["order"]).context({"order": 10**5_000}) == {"order": FAILED}


@pytest.mark.clause("DLQ-2")
def test_a_context_that_cannot_be_redacted_is_replaced() -> None:
    def broken(value: str) -> bool:
        raise RuntimeError(value)

    redactor = Redactor(KEY, [Pattern("trap", re.compile("sold"), broken)], allowed=["order"])

    assert redactor.context({"order": "sold"}) == {"order": FAILED}


def test_equal_payloads_have_equal_hashes_under_one_key() -> None:
    hashed = Redactor(KEY).payload_hash('{"a":1}')

    assert re.fullmatch("[0-9a-f]{16}", hashed)
    assert Redactor(KEY).payload_hash('{"a":1}') == hashed
    assert Redactor(KEY).payload_hash('{"a":2}') != hashed
    assert Redactor(b"").payload_hash('{"a":1}') != hashed


@given(st.text())
def test_no_text_is_too_odd_to_be_redacted(text: str) -> None:
    redacted = Redactor(KEY)(text)

    assert redacted != FAILED
    assert printable(redacted) == redacted


@given(st.text(alphabet="pasword=:\"'\\{}[], %4025?&@.x7\n"))
def test_a_named_secret_is_found_after_whatever_stands_before_it(before: str) -> None:
    assert HEX not in Redactor(KEY)(f"{before} password={HEX}")


def test_characters_that_are_left_out_do_not_use_up_the_margin_behind_a_cut() -> None:
    """A number on the cut would else be shown but for its last digits."""
    text = "\0" * 1_000 + "x" * 3_985 + " 4111111111111111 " + "y" * 20_000

    assert "4111" not in Redactor(b"k").beginning(text, 4_000)
