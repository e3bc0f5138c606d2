"""The shapes of secrets and of personal data: what is one, and what only looks like it."""

import re
from random import Random
from string import ascii_letters, digits

import pytest

from holdfast.core.redaction import Redactor
from holdfast.core.secret_patterns import Pattern, iban, library_patterns, luhn
from tests.unit.secrets_corpus import CORPUS, HEX, MIXED

TAG = re.compile(r"\[([a-z]+):[0-9a-f]{8}…\]")


def kinds(text: str) -> list[str]:
    """What *text* is said to hold."""
    return TAG.findall(Redactor(b"k")(text))


def test_a_pattern_replaces_its_value_if_it_names_one_and_else_all_of_it() -> None:
    assert Pattern("student", re.compile("student (?P<value>[0-9]+)")).group == "value"
    assert Pattern("student", re.compile("student ([0-9]+)")).group == 0


def test_every_kind_is_met_in_the_corpus() -> None:
    met = {kind for secret in CORPUS for kind in kinds(secret.text)}

    assert met == {pattern.kind for pattern in library_patterns()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ada@example.org", ["email"]),
        ("lodash@4.17.21", []),
        ("ada@host", []),
        ("+49 30 1234567", ["phone"]),
        ("+49 30 123", []),
        ("030 123456", ["phone"]),
        ("030 12345", []),
        ("10.1.2.3", ["ip"]),
        ("127.0.0.1", []),
        ("0.0.0.0", []),
        ("10.1.2.256", []),
        ("10.1.2.3.4", []),
        ("2001:db8::1", ["ip"]),
        ("::1", []),
        ("Basic dXNlcjpwYXNz", ["authorization"]),
        ("Basic authentication", []),
        ("basic authentication", []),
        (f"refused Zq8{'xT4vLm9' * 5}", ["opaque"]),
        (f"refused=Zq8{'xT4vLm9' * 5}", ["opaque"]),
        (f"/v1/organizations/members/invitations/Zq8{'xT4vLm9' * 5}", ["opaque"]),
        (f"refused {HEX}", []),
        (f"refused {HEX}{HEX}", ["opaque"]),
        (f"refused {HEX}{HEX}".upper(), ["opaque"]),
        (f"refused {HEX}{HEX[:8]}", []),
        (f"refused {HEX}{HEX[:8]}a", ["opaque"]),
        ("1" * 41, []),
        ("a" * 41, []),
        ("4111 1111 1111 1111", ["card"]),
        ("1111 1111 1111 1117", []),
        ("eyJ" + "a" * 16, ["jwt"]),
        ("eyJ" + "a" * 15, []),
        ("tokens: 12", []),
        ("token: 12", ["secret"]),
        ("jwt=x", ["secret"]),
        ("PyJWT: x", []),
        ("mfa=123456", ["secret"]),
        ("totp: 123456", ["secret"]),
        ("openai_key=x", ["secret"]),
        ("OPENAI_KEY: x", ["secret"]),
        ("stripeKey: x", ["secret"]),
        ("OpenAIKey: x", ["secret"]),
        ("openaikey: x", []),
        ("master_key=x", ["secret"]),
        ("fernet_key=x", ["secret"]),
        ("fernet_keys_base64=x", ["secret"]),
        ("hmac_key: x", ["secret"]),
        ("encryption key: x", ["secret"]),
        ("private key: x", ["secret"]),
        ("secret access key: x", ["secret"]),
        ("x-goog-key: x", ["secret"]),
        ("aws_access_key_id=x", ["secret"]),
        ("openai_key_id=x", []),
        ("primary_key=x", []),
        ("primaryKey=x", []),
        ("key=x", []),
        ("password" + " " * 13 + "= x", ["secret"]),
        ("password:" + " " * 13 + "x", ["secret"]),
        ("--password   x", ["secret"]),
        ("-password x", ["secret"]),
        ("--openai-key x", ["secret"]),
        ("- password x", []),
        ("['mysql', '--password', 'x']", ["secret"]),
        ("['mysql', '-px']", ["secret"]),
        ("mysql -p x", []),
        ("sshpass -px ssh", ["secret"]),
        ("sshpass -p x ssh", ["secret"]),
        ("ssh -p 22", []),
        ("curl -u ada:x", ["login"]),
        ("curl -uada:x", ["login"]),
        ("curl --user ada:x", ["login"]),
        ("curl --user=ada:x", ["login"]),
        ("['curl', '--proxy-user', 'ada:x']", ["login"]),
        ("docker -u 1000:1000", []),
        ("sqlplus scott/x@db", ["login"]),
        ("jdbc:oracle:thin:scott/x@//db:1521/s", ["login"]),
        ("actions/checkout@v4", []),
        ("HTTPBasicAuth('ada','x')", ["login"]),
        ("BasicAuth('ada')", []),
        ("phone='5551234567'", ["phone"]),
        ('{"mobile": "07911123456"}', ["phone"]),
        ("Telefonnummer: 12345678", ["phone"]),
        ("tel. : 12345678", ["phone"]),
        ("phone: 12-3", []),
        ("hotel: 12345678", []),
        ("card_4111111111111111", ["card"]),
        ("card-4111111111111111", ["card"]),
        ("order4111111111111111x", ["card"]),
        ("card_4111111111111112", []),
        ("0.4111111111111111", []),
        ("ab4111111111111111", []),
        ('dup key: { name: "Ada" }', ["row"]),
        ("bypass: 12", []),
        ("user pass: 12", ["secret"]),
        ("https://x.test/a@b", []),
        ("https://ada@x.test/", ["login"]),
    ],
)
def test_what_only_looks_like_it_is_none(text: str, found: list[str]) -> None:
    assert kinds(text) == found


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ('{"passwords": {"list": ["x"], "bob": "y"}, "id": 7}', '{"passwords": *, "id": 7}'),
        ("{'passwords': {'a': [], 'b': '}', 'c': \"it's\"}, 'id': 7}", "{'passwords': *, 'id': 7}"),
        ('tokens=["a]b", "y"], limit=7', "tokens=*, limit=7"),
        ("tokens=[[[[[['x']]]]], 7] and more\nid=7", "tokens=*\nid=7"),
        ('tokens=["it is never closed, id=7\nid=7', "tokens=*\nid=7"),
        ('tokens: {\n  "a": "x",\n  "b": "y"\n}\nid: 7', "tokens: *\nid: 7"),
        ("tokens=[]", "tokens=[]"),
        ("password=Hidden('x', 'y'), id=7", "password=*, id=7"),
        ("password=a(b)c, id=7", "password=*, id=7"),
        ("curl -u 'ada:x y' z", "curl -u '*' z"),
    ],
)
def test_a_value_ends_where_its_bracket_is_closed(text: str, redacted: str) -> None:
    assert TAG.sub("*", Redactor(b"k")(text)) == redacted


@pytest.mark.parametrize(
    "alphabet", [ascii_letters + digits, ascii_letters + digits + "+/", ascii_letters + digits + "-_"]
)
@pytest.mark.parametrize(("length", "missed"), [(32, 30), (43, 10), (64, 3)])
def test_of_random_runs_few_are_missed(alphabet: str, length: int, missed: int) -> None:
    chance = Random(7)
    runs = ["".join(chance.choices(alphabet, k=length)) for _ in range(1_000)]

    assert sum(run in Redactor(b"k")(f"refused {run} twice") for run in runs) <= missed


def test_cards_are_known_by_their_check_digit() -> None:
    assert luhn("4111111111111111")
    assert not luhn("4111111111111112")
    assert not luhn("0000000000000000")


@pytest.mark.parametrize(
    ("number", "valid"),
    [
        ("DE89370400440532013000", True),
        ("NO93 8601 1117 947", True),
        ("ZZ89370400440532013000", False),
        ("de89370400440532013000", True),
        ("DE89370400440532013000 WITH MORE", True),
    ],
)
def test_accounts_are_known_by_their_check_digits(number: str, valid: bool) -> None:
    assert iban(number) is valid


def test_a_word_that_begins_like_a_token_is_none() -> None:
    redacted = Redactor(b"k")(f"secret_manager_for_students and secret_{MIXED}")

    assert TAG.sub("*", redacted) == "secret_manager_for_students and *"
