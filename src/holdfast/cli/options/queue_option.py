"""Parses --queue: names in order of priority, or names with weights."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.core.errors import ConfigError

QueueOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="NAME[:WEIGHT]",
        help="Serve this queue; repeat for more queues, with a weight for all of them or for none.",
        show_default="default",
    ),
]

_WEIGHTED = re.compile(r"(?P<name>.*):(?P<weight>[-+.\d]+)")


def queues(words: Sequence[str]) -> list[str] | dict[str, int]:
    """Parse `mail` or `mail:3`. Raises `ConfigError` if only some have a weight.

    The text after the last colon is a weight if it is a number; a name may contain colons.

    >>> queues(["mail:3", "reports:1"])
    {'mail': 3, 'reports': 1}
    >>> queues(["mail", "ada:reports"])
    ['mail', 'ada:reports']
    """
    weighted = [found for word in words if (found := _WEIGHTED.fullmatch(word))]
    if not weighted:
        return list(words)
    if len(weighted) < len(words):
        raise ConfigError("some queues have a weight and some have none; write NAME:WEIGHT for each of them")
    weights = {found["name"]: _parse_weight(found["weight"]) for found in weighted}
    if len(weights) < len(words):
        raise ConfigError("a queue is named twice; give each of them one weight")
    return weights


def _parse_weight(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a weight; write an integer of at least 1") from None
