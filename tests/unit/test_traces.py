"""The ids in the place where a job stands in a trace."""

import pytest

from holdfast.core.jobs.traces import ids

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_traceparent_gives_the_ids_of_its_trace_and_its_span() -> None:
    assert ids(f"00-{TRACE}-{SPAN}-01") == {"traceId": TRACE, "spanId": SPAN}


def test_a_job_without_a_trace_has_no_ids() -> None:
    assert ids(None) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"{TRACE}-{SPAN}",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_a_text_that_is_no_traceparent_gives_no_ids(text: str) -> None:
    assert ids(text) == {}
