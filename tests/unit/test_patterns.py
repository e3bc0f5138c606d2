"""The shapes of secrets and of personal data: what is one, and what only looks like it."""

import re

import pytest

from holdfast.core.patterns import PATTERNS, Pattern, iban, luhn
from holdfast.core.redaction import Redactor
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

    assert met == {pattern.kind for pattern in PATTERNS}


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
        (f"refused {HEX}", []),
        ("4111 1111 1111 1111", ["card"]),
        ("1111 1111 1111 1117", []),
        ("eyJ" + "a" * 16, ["jwt"]),
        ("eyJ" + "a" * 15, []),
        ("tokens: 12", []),
        ("token: 12", ["secret"]),
        ("bypass: 12", []),
        ("user pass: 12", ["secret"]),
        ("https://x.test/a@b", []),
        ("https://ada@x.test/", ["login"]),
    ],
)
def test_what_only_looks_like_it_is_none(text: str, found: list[str]) -> None:
    assert kinds(text) == found


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
    told = Redactor(b"k")(f"secret_manager_for_students and secret_{MIXED}")

    assert TAG.sub("*", told) == "secret_manager_for_students and *"
