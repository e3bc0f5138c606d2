"""What is checked: the protocol as it is, the limits of any protocol, and mistakes made on purpose.

A variant is `leases.pml` below a few definitions. Of its promises it is expected that they hold in every state which
can be reached, or that one can be broken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum


class Promise(Enum):
    """What is looked at: its name in the model, and what that means."""

    ONE_COMPLETION = "the job is completed at most once"
    NO_STALE_WRITE = "only the holder of the lease changes the job"
    WITHIN_BUDGET = "no more attempts are begun than the budget has"
    NEVER_STUCK = "the job cannot get stuck"
    ENDS = "once the faults stop, the job ends"
    NEVER_TWICE = "at most one effect, and one more for each replay"
    ONCE_FOR_ALL = "at most one effect, replays included"
    NEVER_MISSED = "a completed job has had its effect"
    EXACTLY_ONCE = "a completed job has had its effect exactly once"
    TRUE_RECORD = "the effect is recorded truly, or as unknown"
    KNOWN_OUTCOME = "no effect is recorded as unknown"


class Verdict(StrEnum):
    """The result for the promises: every state was visited, or one was found that breaks them."""

    HOLDS = "holds"
    BROKEN = "counter-example"


@dataclass(frozen=True)
class Variant:
    """One run of the checker: a world, and the promises that are looked at in it."""

    name: str
    world: tuple[str, ...]
    promises: tuple[Promise, ...]
    expected: Verdict

    @property
    def is_about_endless_runs(self) -> bool:
        """Whether the promise is about what eventually happens, rather than about bad states."""
        return Promise.ENDS in self.promises

    def with_faults(self, count: int | None) -> Variant:
        """Return the variant with *count* faults, unless it says itself how many there are."""
        if count is None or any(definition.startswith("FAULTS") for definition in self.world):
            return self
        return replace(self, world=(*self.world, f"FAULTS {count}"))


def holds(name: str, *world: str, promises: tuple[Promise, ...]) -> Variant:
    """Describe a world in which *promises* hold."""
    return Variant(name, world, promises, Verdict.HOLDS)


def breaks(name: str, *world: str, promise: Promise) -> Variant:
    """Describe a world in which *promise*, the only one that is looked at, can be broken."""
    return Variant(name, world, (promise,), Verdict.BROKEN)


ALWAYS = (Promise.ONE_COMPLETION, Promise.NO_STALE_WRITE, Promise.WITHIN_BUDGET, Promise.NEVER_STUCK)
"""What is promised whatever the effect is."""

SMALLER = ("WORKERS 2", "FAULTS 3", "REPLAYS 0")
"""Looking for endless runs costs twenty times as much as looking for bad states."""

EVERYDAY = ("NO_PAUSES", "NO_SHUTDOWNS")
"""Only crashes and lost answers, so that the shortest counter-example is an everyday one."""

PROMISED = (
    holds("keyed", "KEYED", promises=(*ALWAYS, Promise.NEVER_TWICE, Promise.NEVER_MISSED)),
    holds("keyed, not replayed", "KEYED", "REPLAYS 0", promises=(Promise.EXACTLY_ONCE,)),
    holds("keyed, over time", "KEYED", *SMALLER, promises=(Promise.ENDS,)),
    holds("unkeyed", promises=(*ALWAYS, Promise.NEVER_MISSED)),
    holds("unkeyed, over time", *SMALLER, promises=(Promise.ENDS,)),
    holds(
        "unkeyed, one attempt, no shutdown",
        *("BUDGET 1", "NO_SHUTDOWNS"),
        promises=(*ALWAYS, Promise.NEVER_TWICE, Promise.NEVER_MISSED),
    ),
    holds(
        "reviewed",
        *("REVIEWED", "REPLAYS 0"),
        promises=(*ALWAYS, Promise.NEVER_TWICE, Promise.EXACTLY_ONCE, Promise.TRUE_RECORD),
    ),
    holds("reviewed, over time", "REVIEWED", *SMALLER, promises=(Promise.ENDS,)),
    holds(
        "reviewed, replayed after waiting and looking",
        *("REVIEWED", "PERSON_WAITS_AND_LOOKS"),
        promises=(*ALWAYS, Promise.ONCE_FOR_ALL),
    ),
)

LIMITS = (
    breaks("unkeyed, called and then recorded", *EVERYDAY, "REPLAYS 0", promise=Promise.EXACTLY_ONCE),
    breaks(
        "unkeyed, recorded and then called",
        *("RECORD_THEN_CALL", "REPLAYS 0", *EVERYDAY),
        promise=Promise.EXACTLY_ONCE,
    ),
    breaks("unkeyed", *EVERYDAY, promise=Promise.NEVER_TWICE),
    breaks("unkeyed, one attempt, and a shutdown", "BUDGET 1", promise=Promise.NEVER_TWICE),
    breaks("unkeyed, looked up before each call", "ASKED", *EVERYDAY, promise=Promise.NEVER_TWICE),
    breaks(
        "keyed, and the provider forgets", "KEYED", "PROVIDER_FORGETS", *EVERYDAY, promise=Promise.NEVER_TWICE
    ),
    breaks("keyed, and replayed", "KEYED", *EVERYDAY, promise=Promise.ONCE_FOR_ALL),
    breaks("reviewed", "REVIEWED", *EVERYDAY, promise=Promise.KNOWN_OUTCOME),
    breaks("reviewed, replayed after looking", "REVIEWED", "PERSON_LOOKS", promise=Promise.ONCE_FOR_ALL),
)

OVERLAPS = (
    holds("reclaiming does not raise the token", "NO_RAISE_ON_RECLAIM", *SMALLER, promises=ALWAYS),
    holds("claiming does not raise the token", "NO_RAISE_ON_CLAIM", *SMALLER, promises=ALWAYS),
    holds("a write also fits a queued job", "FENCE_WITHOUT_LEASE", *SMALLER, promises=ALWAYS),
    breaks(
        "neither claiming nor reclaiming raises it",
        *("NO_RAISE_ON_CLAIM", "NO_RAISE_ON_RECLAIM", "NO_SHUTDOWNS"),
        promise=Promise.NO_STALE_WRITE,
    ),
    breaks(
        "reclaiming does not, and a write fits a queued job",
        *("NO_RAISE_ON_RECLAIM", "FENCE_WITHOUT_LEASE", "NO_SHUTDOWNS"),
        promise=Promise.NO_STALE_WRITE,
    ),
)

MISTAKES = (
    breaks("no fence", "NO_FENCE", "NO_SHUTDOWNS", promise=Promise.NO_STALE_WRITE),
    breaks("no fence, twice completed", "NO_FENCE", "NO_SHUTDOWNS", promise=Promise.ONE_COMPLETION),
    breaks("the status as the fence", "FENCE_BY_STATUS", "NO_SHUTDOWNS", promise=Promise.NO_STALE_WRITE),
    breaks("the attempt as the fence", "FENCE_BY_ATTEMPT", "NO_SHUTDOWNS", promise=Promise.NO_STALE_WRITE),
    breaks(
        "look at the lease, then write", "LOOK_THEN_WRITE", "NO_SHUTDOWNS", promise=Promise.NO_STALE_WRITE
    ),
    breaks(
        "the token starts again on a replay",
        *("TOKEN_RESTARTS_ON_REPLAY", "NO_SHUTDOWNS"),
        promise=Promise.NO_STALE_WRITE,
    ),
    breaks(
        "an attempt is spent when it ends", "ATTEMPT_SPENT_AT_END", *EVERYDAY, promise=Promise.WITHIN_BUDGET
    ),
    breaks("the budget ignores crashes", "CRASHES_NOT_BUDGETED", *EVERYDAY, promise=Promise.WITHIN_BUDGET),
    breaks("no worker reclaims", "NO_RECLAIM", promise=Promise.NEVER_STUCK),
    breaks(
        "leases are extended for the dead",
        *("EXTENDED_FOR_THE_DEAD", "WORKERS 2", "FAULTS 1", "REPLAYS 0", *EVERYDAY),
        promise=Promise.ENDS,
    ),
    breaks(
        "keyed, and each attempt has a new key",
        *("KEYED", "KEY_CHANGES_WITH_ATTEMPT", *EVERYDAY),
        promise=Promise.NEVER_TWICE,
    ),
    breaks(
        "reviewed, and called before 'sending' is written",
        *("REVIEWED", "CALL_BEFORE_MARK", *EVERYDAY),
        promise=Promise.NEVER_TWICE,
    ),
    breaks(
        "reviewed, and 'sending' is written without a fence",
        *("REVIEWED", "MARK_NOT_FENCED", "NO_SHUTDOWNS"),
        promise=Promise.NEVER_TWICE,
    ),
    breaks(
        "reviewed, and the unknown is retried",
        *("REVIEWED", "RETRY_UNKNOWN_SILENTLY", *EVERYDAY),
        promise=Promise.NEVER_TWICE,
    ),
    breaks(
        "reviewed, and the unknown is recorded as failed",
        *("REVIEWED", "UNKNOWN_RECORDED_AS_FAILED", *EVERYDAY),
        promise=Promise.TRUE_RECORD,
    ),
)

SECTIONS = {
    "What is promised": PROMISED,
    "Why no more can be": LIMITS,
    "Locks that overlap": OVERLAPS,
    "Mistakes on purpose": MISTAKES,
}
"""All variants, under the headings of the page that explains them."""

VARIANTS = tuple(variant for section in SECTIONS.values() for variant in section)
