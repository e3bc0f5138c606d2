"""What holds a job, as it is stored and displayed."""

import pytest

from holdfast.core.providers.holder import Holder

STORED = {
    "llm": Holder("llm"),
    "llm\n": Holder("llm", ""),
    "llm\ncustomer-7": Holder("llm", "customer-7"),
    "llm\n\n": Holder("llm", for_retries=True),
    "\nsend\nmail": Holder(job="send", queue="mail"),
    "\nsend": Holder(job="send"),
}


@pytest.mark.parametrize("text", STORED)
def test_a_holder_is_read_as_it_was_stored(text: str) -> None:
    assert Holder.parse(text) == STORED[text]
    assert STORED[text].text == text


@pytest.mark.parametrize(
    ("holder", "label"),
    [
        (Holder("llm"), "llm"),
        (Holder("llm", ""), "llm (limit)"),
        (Holder("llm", "customer-7"), "llm (limit of customer-7)"),
        (Holder("llm", for_retries=True), "llm (retry budget)"),
        (Holder(job="send", queue="mail"), "no worker knows 'send'"),
    ],
)
def test_a_holder_is_displayed_in_words(holder: Holder, label: str) -> None:
    assert holder.label == label


def test_holders_say_what_a_job_waits_for() -> None:
    holders = [Holder("llm"), Holder("llm", ""), Holder("llm", "customer 7"), Holder("llm", for_retries=True)]

    assert {holder.provider for holder in holders} == {"llm"}
    assert [holder.label for holder in holders] == [
        "llm",
        "llm (limit)",
        "llm (limit of customer 7)",
        "llm (retry budget)",
    ]
    assert [holder.key for holder in holders] == [None, "", "customer 7", None]
