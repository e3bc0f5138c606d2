"""Scripts: which fault is injected into which call. Values and one decision; no clock, no randomness, no I/O."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import NamedTuple

from holdfast_simulator.codec import ScriptError, from_json, to_json
from holdfast_simulator.faults import Fault


@dataclass(frozen=True, slots=True)
class Call:
    """The parts of a call that rules match. The route is method and path: `POST /effects/mail`."""

    route: str
    key: str | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many calls a rule has selected, and into how many of them its fault was injected."""

    seen: int = 0
    fired: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault and the calls that it is injected into.

    *route* is a pattern with `*`, of a path or of method and path; *key* and *body* are substrings of
    the idempotency key and of the body. A rule counts the calls that these three select, from 1,
    including those that an earlier rule fired for. It skips the first *after* calls and those
    beyond number *until*, fires for the others with *probability*, and at most *times* times.
    """

    fault: Fault
    route: str | None = None
    key: str | None = None
    body: str | None = None
    times: int | None = None
    probability: float = 1.0
    after: int = 0
    until: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must lie between 0 and 1, not {self.probability}")

    def selects(self, call: Call) -> bool:
        """Return whether this rule counts the call."""
        if self.route is not None and not route_matches(self.route, call.route):
            return False
        if self.key is not None and self.key not in (call.key or ""):
            return False
        return self.body is None or self.body.encode() in call.body

    def fires(self, tally: Tally, *, roll: float) -> bool:
        """Return whether the rule fires for the last call counted in *tally*; *roll* is in [0, 1)."""
        if tally.seen <= self.after or (self.until is not None and tally.seen > self.until):
            return False
        if self.times is not None and tally.fired >= self.times:
            return False
        return roll < self.probability


@dataclass(frozen=True, slots=True)
class Script:
    """The behaviour of a provider: its faults, and its guarantees for keys and lookups.

    With *honours_keys*, a key that is repeated within *key_window* (None: at any time) gets the first
    answer and has no second effect. A lookup by key finds an effect only *lookup_lag* after it took place.
    """

    rules: tuple[Rule, ...] = ()
    seed: int = 0
    honours_keys: bool = True
    key_window: timedelta | None = None
    lookup_lag: timedelta = timedelta(0)

    @classmethod
    def of(cls, *rules: Rule, seed: int = 0) -> "Script":
        """Build a script with rules only."""
        return cls(rules=rules, seed=seed)

    @classmethod
    def loads(cls, text: str | bytes) -> "Script":
        """Read a script from JSON. Raises `ScriptError`, which names the position.

        >>> Script.loads('{"rules": [{"fault": "hang", "times": 2}]}').rules[0].times
        2
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ScriptError(f"script: not JSON ({error})") from error
        return from_json(cls, value)

    def dumps(self) -> str:
        """Return the script as JSON; `loads` returns an equal value."""
        return json.dumps(to_json(self))

    @property
    def looks_into_bodies(self) -> bool:
        """Whether a body must be read before the fault of its call can be chosen."""
        return any(rule.body is not None for rule in self.rules)

    def untouched(self) -> tuple[Tally, ...]:
        """Return the tallies of a script before the first call."""
        return (Tally(),) * len(self.rules)


class Decision(NamedTuple):
    """The fault of one call, if any, and the tallies for the next decision."""

    fault: Fault | None
    tallies: tuple[Tally, ...]


def decide(script: Script, tallies: tuple[Tally, ...], call: Call) -> Decision:
    """Choose the fault of the first rule that fires for this call.

    The same script and the same order of calls give the same faults.

    >>> from holdfast_simulator.faults import Hang
    >>> script = Script.of(Rule(Hang(), times=1))
    >>> first = decide(script, script.untouched(), Call("POST /effects/mail"))
    >>> second = decide(script, first.tallies, Call("POST /effects/mail"))
    >>> first.fault is not None, second.fault is None
    (True, True)
    """
    fault: Fault | None = None
    counted = []
    for index, (rule, tally) in enumerate(zip(script.rules, tallies, strict=True)):
        now = tally
        if rule.selects(call):
            now = replace(tally, seen=tally.seen + 1)
            if fault is None and rule.fires(now, roll=_roll(script.seed, index, now.seen)):
                fault, now = rule.fault, replace(now, fired=now.fired + 1)
        counted.append(now)
    return Decision(fault, tuple(counted))


def standing_fault(standing: Iterable[tuple[str | None, Fault]], call: Call) -> Fault | None:
    """Return the first standing fault whose route matches the call; None matches every route."""
    for route, fault in standing:
        if route is None or route_matches(route, call.route):
            return fault
    return None


def route_matches(pattern: str, route: str) -> bool:
    """Return whether a route matches a pattern of a path, or of method and path.

    >>> route_matches("/effects/*", "POST /effects/mail"), route_matches("GET /*", "POST /effects/mail")
    (True, False)
    """
    if " " in pattern:
        return fnmatchcase(route, pattern)
    return fnmatchcase(route.partition(" ")[2], pattern)


def _roll(seed: int, rule: int, seen: int) -> float:
    digest = blake2b(b"%d:%d:%d" % (seed, rule, seen), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48
