"""Text that leaves the process can neither forge a log line nor move a cursor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.redaction import redact


@pytest.mark.parametrize("text", ["", "plain", "two\nlines\tand a tab", "é 🜁 'quoted' \\x1b"])
def test_what_can_be_read_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@given(st.text())
def test_no_control_character_is_left_but_line_ends_and_tabs(text: str) -> None:
    left = redact(text)

    assert left.replace("\n", "").replace("\t", "").isprintable()
    assert [one for one in text if one in left] == list(left)
