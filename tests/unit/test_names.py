"""Which texts every store can keep as a name."""

import pytest

from holdfast.core.errors import ConfigError
from holdfast.core.names import LONGEST_NAME, ensure_name, is_name


@pytest.mark.parametrize(
    "text", ["send", "mail.send v2", "Zoë", "x" * LONGEST_NAME], ids=["plain", "spaces", "letters", "longest"]
)
def test_printable_text_is_a_name(text: str) -> None:
    assert is_name(text)
    assert ensure_name(text, "job") is text


@pytest.mark.parametrize(
    "text",
    ["two\nlines", "NUL\x00", "tab\t", "x" * (LONGEST_NAME + 1)],
    ids=["two lines", "NUL", "tab", "too long"],
)
def test_text_that_a_store_could_not_keep_is_no_name(text: str) -> None:
    assert not is_name(text)
    with pytest.raises(ConfigError, match="use printable text of 1 to 200 characters"):
        ensure_name(text, "job")


@pytest.mark.parametrize("other", [None, 7, b"send"], ids=["None", "number", "bytes"])
def test_only_text_is_a_name(other: object) -> None:
    assert not is_name(other)


def test_an_empty_text_can_be_stored_but_names_nothing() -> None:
    assert is_name("")
    with pytest.raises(ConfigError, match="'' cannot name a queue;"):
        ensure_name("", "queue")
