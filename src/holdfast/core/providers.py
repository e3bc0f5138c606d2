"""A provider: an outside service as declared, and what all workers of a store know about it together."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from holdfast.core.breakers import (
    Breaker,
    Cause,
    Command,
    Gate,
    Order,
    Outcome,
    Ramp,
    Seen,
    Shut,
    Trial,
    lets_through,
    release,
    state_of,
)
from holdfast.core.failures import ErrorClass, Failure, Scope, Verdict
from holdfast.core.limits import Desk, Grant, Limits, Quota, Rate, Share, Wish, worth_letting_out

_MARK = "\n"
"""Stands between a provider's name and a key in the name of a holder; no name has it."""

LONGEST_KEY = 200

MOST_RETRIES = 10.0
"""How many retries can be saved up."""

MOST_KEYS = 200
"""For how many keys jobs are let out in one step: each costs a row."""

ORPHANED_AFTER = 10.0
"""Seconds after which nobody seems to be left who knows the limits that jobs are held for."""

ORPHANED = Limits(rate=Rate(1, timedelta(seconds=1)))
"""How jobs are let out that wait for the limits of a provider which is not declared here."""


def held_for_limit(name: str, key: str) -> str:
    """Name the holder of jobs that wait for a limit; one that waits for the gate is held by the provider's name."""
    return f"{name}{_MARK}{key}"


def checked_key(key: object) -> str:
    """Give a key as text; refuse one that cannot be stored and shown. Raises `ValueError`."""
    if key is None:
        raise ValueError("Not a key: None. Give each customer a text; '' stands for nobody in particular")
    key = str(key)
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise ValueError(f"Not a key: {key[:20]!r}. Use printable text of at most {LONGEST_KEY} characters")
    return key


def held_for_retries(name: str) -> str:
    """Name the holder of jobs whose next call would be one retry too many."""
    return f"{name}{_MARK}{_MARK}"


def held_for_name(job: str, queue: str) -> str:
    """Name the holder of jobs that wait for a worker which knows their name and serves their queue.

    It begins with the separator: no provider has an empty name.
    """
    return f"{_MARK}{job}{_MARK}{queue}"


def awaited_name(holder: str) -> str | None:
    """Give the name of the jobs that wait for a worker which knows it; `None` if a provider holds them.

    >>> awaited_name(held_for_name("send", "mail")), awaited_name("llm"), awaited_name(held_for_limit("llm", "ann"))
    ('send', None, None)
    """
    provider, _, awaited = holder.partition(_MARK)
    return None if provider else awaited.partition(_MARK)[0]


def awaited_queue(holder: str) -> str | None:
    """Give the queue of the jobs that wait for a worker which knows their name.

    `None` if a provider holds them, or if an earlier version did not store the queue.

    >>> awaited_queue(held_for_name("send", "mail")), awaited_queue("\\nsend"), awaited_queue("llm")
    ('mail', None, None)
    """
    provider, _, awaited = holder.partition(_MARK)
    return None if provider else awaited.partition(_MARK)[2] or None


def provider_of(holder: str) -> str:
    """Name the provider that holds a job; it is empty if the job waits for a worker that knows its name.

    >>> provider_of(held_for_limit("llm", "customer-7")), provider_of("llm"), provider_of(held_for_name("send", "mail"))
    ('llm', 'llm', '')
    """
    return holder.partition(_MARK)[0]


def limited_key(holder: str) -> str | None:
    """Give the key for whose limit a job is held; `None` if it is held for something else.

    >>> limited_key("llm"), limited_key(held_for_limit("llm", "")), limited_key(held_for_limit("llm", "ann"))
    (None, '', 'ann')
    """
    _, mark, key = holder.partition(_MARK)
    return key if mark and key != _MARK else None


def shown(holder: str) -> str:
    """Name a holder to people.

    >>> shown("llm"), shown(held_for_limit("llm", "")), shown(held_for_limit("llm", "customer-7"))
    ('llm', 'llm (limit)', 'llm (limit of customer-7)')
    >>> shown(held_for_name("send", "mail"))
    "no worker knows 'send'"
    """
    unknown = awaited_name(holder)
    if unknown is not None:
        return f"no worker knows {unknown!r}"
    name, mark, key = holder.partition(_MARK)
    if not mark:
        return name
    if key == _MARK:
        return f"{name} (retry budget)"
    return f"{name} (limit of {key})" if key else f"{name} (limit)"


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """A provider as declared."""

    name: str
    timeout: timedelta = timedelta(seconds=60)
    limits: Limits = field(default_factory=Limits)
    breaker: Breaker = field(default_factory=Breaker)
    backup: str | None = None
    key: Callable[[Any], str] | None = None
    """Tells the calls of different customers apart, by the stage's arguments."""
    key_limits: Limits = field(default_factory=Limits)
    retry_budget: float | None = None

    @property
    def limited(self) -> bool:
        """Whether a call may have to wait for anything but the gate."""
        return self.limits.any or self.key_limits.any or self.retry_budget is not None

    @property
    def counts_places(self) -> bool:
        """Whether there is a limit on the calls at a time."""
        return self.limits.concurrency is not None or self.key_limits.concurrency is not None


@dataclass(frozen=True, slots=True)
class ProviderState:
    """What is shared of a provider: its gate, and what is given out of its limits.

    What is given out of the limits of a key is stored apart, one row for each key. Only the keys that somebody asked
    for are here.
    """

    gate: Gate = field(default_factory=Gate)
    quota: Quota = field(default_factory=Quota)
    keys: Mapping[str, Quota] = field(default_factory=dict)
    """What is given out of the limits of keys: of those that were read."""
    inline: Mapping[str, Quota] = field(default_factory=dict)
    """What stands beside the gate: when jobs go out to retry, and the keys of workers that know no rows for them."""
    retries: float = MOST_RETRIES
    """How many calls may be retries, as of `retries_at`."""
    retries_at: float = 0.0
    turn: int = 0
    """How often jobs were let out that wait for a limit: whose key is first goes round."""

    def dump(self) -> str:
        """Write it down as JSON, without the keys that have rows of their own."""
        gate = {name: getattr(self.gate, name) for name in Gate.__slots__}
        inline = {key: _written(quota) for key, quota in self.inline.items()}
        return json.dumps(
            {
                "gate": gate,
                "quota": _written(self.quota),
                "keys": inline,
                "retries": self.retries,
                "retries_at": self.retries_at,
                "turn": self.turn,
            },
            separators=(",", ":"),
        )

    @classmethod
    def load(cls, text: str) -> "ProviderState":
        """Read what `dump` wrote, also if a newer or an older version of the library wrote it."""
        stored = json.loads(text)
        return cls(
            gate=_gate(stored.get("gate", {})),
            quota=_quota(stored.get("quota", ())),
            inline={key: _quota(quota) for key, quota in stored.get("keys", {}).items()},
            retries=stored.get("retries", MOST_RETRIES),
            retries_at=stored.get("retries_at", 0.0),
            turn=stored.get("turn", 0),
        )

    def with_keys(self, wanted: Iterable[str], stored: Mapping[str, str]) -> "ProviderState":
        """Add what is stored of the *wanted* keys, and what workers that know no rows have taken of them."""
        rows = {key: _quota(json.loads(stored[key])) if key in stored else Quota() for key in wanted}
        keys = {key: _together(quota, self.inline.get(key)) for key, quota in rows.items()}
        return replace(self, keys={key: quota for key, quota in keys.items() if quota != Quota()})

    def without_keys(self) -> "ProviderState":
        """What stands in the provider's own row."""
        return replace(self, keys={})

    def changed_keys(self, before: "ProviderState", now: float) -> dict[str, Quota]:
        """Tell what is to be written of keys; one that was idle *before*, and is forgotten, stays until it is deleted."""
        kept = {key: quota for key, quota in self.keys.items() if before.keys.get(key) != quota}
        dropped = [key for key in before.keys if key not in self.keys and not before.keys[key].idle(now)]
        return kept | dict.fromkeys(dropped, Quota())

    def give(
        self, spec: ProviderSpec, worker: str, wish: Wish, now: float
    ) -> tuple["ProviderState", list[Grant]]:
        """Give *worker* what it may have of the limits; keys that nobody uses any more are forgotten."""
        if not (spec.limits.any or spec.key_limits.any):
            return self, []
        desk = Desk(worker, now, spec.limits, spec.key_limits, self.quota, dict(self.keys))
        grants = desk.give(wish)
        return replace(
            self, quota=desk.quota, keys=_in_use(desk.keys, now), inline=_in_use(self.inline, now)
        ), grants

    def give_retries(
        self, spec: ProviderSpec, *, firsts: int, wanted: int, now: float
    ) -> tuple["ProviderState", int]:
        """Let up to *wanted* calls be retries: one a second, and the budgeted part of all *firsts*, saved up."""
        if spec.retry_budget is None or not (firsts or wanted):
            return self, wanted
        saved = min(MOST_RETRIES, self._saved(now) + spec.retry_budget * firsts)
        if not wanted and saved == self.retries:
            return self, 0  # there is no need to save more
        count = min(wanted, int(saved))
        return replace(self, retries=saved - count, retries_at=now), count

    def _saved(self, now: float) -> float:
        return min(MOST_RETRIES, self.retries + max(0.0, now - self.retries_at))

    def let_out(
        self,
        name: str,
        spec: ProviderSpec | None,
        holders: Sequence[str],
        now: float,
        *,
        most: int,
        elsewhere: bool = False,
    ) -> tuple["ProviderState", dict[str, int]]:
        """Tell how many jobs to let out of each holder, all of them of this provider; the state notes that they are out.

        *spec* is `None` if the provider is not declared here. While the gate is shut those who wait for a limit stay,
        unless they can go *elsewhere*, to a backup: they would only wait there. If nobody else does, they are the trials.
        """
        state, out = self, dict[str, int]()
        at_the_gate = [name] if name in holders else []
        if not (at_the_gate or elsewhere or lets_through(self.gate)):
            at_the_gate = list(holders)
        if at_the_gate:
            breaker = Breaker() if spec is None else spec.breaker
            gate, size = release(self.gate, breaker, now, elsewhere=elsewhere)
            state, out = replace(self, gate=gate), {at_the_gate[0]: size}
        if not (elsewhere or lets_through(state.gate)):
            return state, out
        if held_for_retries(name) in holders:
            state, out[held_for_retries(name)] = state._let_out_to_retry(now)
        limited = self._next_in_turn(name, holders)
        if limited:
            state, outs = state._let_out_of_limits(spec, limited, now, most)
            out |= outs
        return state, out

    def keys_to_let_out(self, name: str, spec: ProviderSpec | None, holders: Sequence[str]) -> list[str]:
        """Name the keys whose limits decide about the next jobs to let out."""
        if spec is None or not spec.key_limits.any:
            return []
        return [holder.partition(_MARK)[2] for holder in self._next_in_turn(name, holders)]

    def _next_in_turn(self, name: str, holders: Sequence[str]) -> list[str]:
        """Pick the holders for limits whose turn it is: some of very many."""
        limited = [holder for holder in holders if holder not in (name, held_for_retries(name))]
        first = self.turn % len(limited) if limited else 0
        return [*limited[first : first + MOST_KEYS], *limited[: max(0, first + MOST_KEYS - len(limited))]][
            : len(limited)
        ]

    def _let_out_to_retry(self, now: float) -> tuple["ProviderState", int]:
        saved = int(self._saved(now))
        quota, count = worth_letting_out(Limits(), self.inline.get(_MARK, Quota()), now, most=saved)
        return (replace(self, inline={**self.inline, _MARK: quota}) if count else self), count

    def _let_out_of_limits(
        self, spec: ProviderSpec | None, holders: Sequence[str], now: float, most: int
    ) -> tuple["ProviderState", dict[str, int]]:
        if spec is None and now < self.quota.out_at + ORPHANED_AFTER:
            return self, dict.fromkeys(holders, 0)  # somebody who knows the limits is at it
        limits = ORPHANED if spec is None else spec.limits
        key_limits = Limits() if spec is None else spec.key_limits
        quota, left = worth_letting_out(limits, self.quota, now, most=most)
        if not left:
            return self, dict.fromkeys(holders, 0)
        keys, out = dict(self.keys), {}
        for number, holder in enumerate(holders):
            key = holder.partition(_MARK)[2]
            part = -(-left // (len(holders) - number))
            if key_limits.any and part:
                keys[key], part = worth_letting_out(key_limits, keys.get(key, Quota()), now, most=part)
            out[holder] = part
            left -= part
        # Of few holders another one is first each time; of very many the next ones have their turn.
        turn = self.turn + (1 if len(holders) < MOST_KEYS else MOST_KEYS)
        return replace(self, quota=quota, keys=keys, turn=turn), out


def _in_use(keys: Mapping[str, Quota], now: float) -> dict[str, Quota]:
    return {key: quota for key, quota in keys.items() if not quota.idle(now)}


def _together(quota: Quota, beside: Quota | None) -> Quota:
    """Add what workers have taken that write it elsewhere."""
    if beside is None:
        return quota
    return Quota(
        max(quota.next_at, beside.next_at),
        max(quota.out_at, beside.out_at),
        {**quota.shares, **beside.shares},
    )


def written_quota(quota: Quota) -> str:
    """Write down what is given out of the limits of a key."""
    return json.dumps(_written(quota), separators=(",", ":"))


def _written(quota: Quota) -> list[Any]:
    return [quota.next_at, quota.out_at, quota.shares]


def _quota(stored: Sequence[Any]) -> Quota:
    if not stored:
        return Quota()
    next_at, out_at, shares = stored[:3]
    return Quota(next_at, out_at, {worker: Share(*share[:3]) for worker, share in shares.items()})


_CAUSES = {cause.value: cause for cause in Cause}
_COMMANDS = {command.value: command for command in Command}


def _gate(stored: Mapping[str, Any]) -> Gate:
    # A cause or a command that is not known here still keeps calls back, and its trials or its end come as usual.
    shut, ramp, order = stored.get("shut"), stored.get("ramp"), stored.get("order")
    return Gate(
        generation=stored.get("generation", 1),
        seen=tuple(Seen(*call[:3]) for call in stored.get("seen", ())),
        shut=None if shut is None else Shut(_CAUSES.get(shut[0], Cause.FAILURES), *shut[1:6]),
        trials=tuple(Trial(*trial[:2]) for trial in stored.get("trials", ())),
        denials=stored.get("denials", 0),
        ramp=None if ramp is None else Ramp(*ramp[:2]),
        order=None if order is None else Order(_COMMANDS.get(order[0], Command.PAUSE), *order[1:4]),
        probes=stored.get("probes", 0),
    )


def outcome_of(failure: Failure) -> Outcome:
    """Say what a failed call tells about its provider.

    >>> str(outcome_of(Failure.of(ErrorClass.NETWORK_TIMEOUT, "no answer")))
    'failure'
    """
    match failure.scope, failure.error_class:
        case Scope.PROVIDER, ErrorClass.QUOTA_EXHAUSTED:
            return Outcome.EXHAUSTED
        case Scope.PROVIDER, ErrorClass.AUTH_DENIED | ErrorClass.MISCONFIGURED:
            return Outcome.DENIED
    return _OUTCOMES[failure.verdict]


_OUTCOMES = {
    Verdict.FAIL: Outcome.FAILURE,
    Verdict.LIMIT: Outcome.LIMITED,
    Verdict.IGNORE: Outcome.IGNORED,
}


def waiting_for(name: str, gate: Gate, now: float) -> str:
    """Say why a job is held at a gate.

    >>> waiting_for("llm", Gate(shut=Shut(Cause.FAILURES, 0.0, 30.0, failed=11, seen=20)), 1.0)
    'llm is open: 11 of 20 calls failed'
    """
    state = state_of(gate, now)
    if gate.order is not None:
        return f"{name} is {state} by {gate.order.actor}" + (
            f": {gate.order.reason}" if gate.order.reason else ""
        )
    if state == "recovering":
        return f"{name} is recovering, and those who were held go first"
    if gate.shut is not None and gate.shut.cause is Cause.FAILURES and gate.shut.failed:
        return f"{name} is {state}: {gate.shut.failed} of {gate.shut.seen} calls failed"
    return f"{name} is {state}"
