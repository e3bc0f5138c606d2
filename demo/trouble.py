"""The faults of the provider; the seed makes them the same in every run."""

from dataclasses import replace
from datetime import timedelta

from demo.orders import MISSPELT, UNSERVED
from holdfast_simulator import DOWN, Moment, RateLimit, Reset, Rule, Script, Slow, Status

RETRY_AFTER = timedelta(seconds=2)


def _no_route_to(place: str) -> Rule:
    refusal = {"error": {"code": "unknown_destination", "message": f"no route to {place}"}}
    return Rule(Status(400, body=refusal), route="POST /effects/ship", body=place)


_GOOD_DAY = Rule(Slow(timedelta(seconds=0.25)))
"""The duration of a call without a fault."""

_FLAKY = (
    Rule(Status(503), probability=0.06),
    Rule(RateLimit(wait=RETRY_AFTER), probability=0.03),
    Rule(Reset(at=Moment.AFTER_EFFECT), probability=0.04),
    Rule(Slow(timedelta(seconds=1.5)), probability=0.05),
    _GOOD_DAY,
)

FLAKY = Script.of(_no_route_to(UNSERVED), _no_route_to(MISSPELT), *_FLAKY, seed=7)

REPAIRED = replace(FLAKY, rules=FLAKY.rules[1:])
"""As flaky as before, but with a route to every existing place."""

ASSISTANT_DOWN = Script.of(Rule(DOWN, route="POST /effects/advise"), _GOOD_DAY)
ASSISTANT_BACK = Script.of(_GOOD_DAY)
