"""Where a job stands in its submitter's trace: a W3C `traceparent`, kept as text."""

import re

_TRACEPARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def ids(trace: str | None) -> dict[str, str]:
    """Return the ids of *trace* under the names that log lines have for them; nothing if there is none.

    >>> ids("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    {'traceId': '0af7651916cd43dd8448eb211c80319c', 'spanId': 'b7ad6b7169203331'}
    """
    if trace is None:
        return {}
    found = _TRACEPARENT.fullmatch(trace)
    return {} if found is None else {"traceId": found[1], "spanId": found[2]}
