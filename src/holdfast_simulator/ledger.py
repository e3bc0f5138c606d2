"""The effects of the provider, by id and by idempotency key."""

from collections import defaultdict
from dataclasses import dataclass

from holdfast_simulator.http import Answer
from holdfast_simulator.script import Script


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect that took place, with the answer that reported it.

    `done_at` is in seconds of the provider's monotonic clock.
    """

    id: str
    name: str
    key: str | None
    done_at: float
    answer: Answer


class Ledger:
    """All effects of one provider, in the order in which they took place."""

    def __init__(self) -> None:
        self._by_id: dict[str, Effect] = {}
        self._by_key: defaultdict[str, list[Effect]] = defaultdict(list)

    def next_id(self) -> str:
        """Return the id of the next effect."""
        return f"eff_{len(self._by_id) + 1:06}"

    def add(self, effect: Effect) -> None:
        """Record an effect."""
        self._by_id[effect.id] = effect
        if effect.key is not None:
            self._by_key[effect.key].append(effect)

    def first(self, key: str | None) -> Effect | None:
        """Return the first effect under a key, regardless of its age."""
        effects = self._by_key.get(key) if key is not None else None
        return effects[0] if effects else None

    def remembered(self, key: str | None, script: Script, *, now: float) -> Effect | None:
        """Return the effect whose answer is sent again for this key; None if the key is unknown or has expired."""
        effects = self._by_key.get(key) if key is not None else None
        if not effects or not script.honours_keys:
            return None
        latest, window = effects[-1], script.key_window
        # The window starts at the latest effect; a call after its end is a first call again.
        expired = window is not None and now - latest.done_at >= window.total_seconds()
        return None if expired else latest

    def get(self, effect_id: str) -> Effect | None:
        """Return an effect by its id, without lookup lag."""
        return self._by_id.get(effect_id)

    def visible(self, key: str, script: Script, *, now: float) -> list[Effect]:
        """Return the effects under a key that a lookup at *now* finds."""
        lag = script.lookup_lag.total_seconds()
        return [effect for effect in self._by_key.get(key, ()) if now - effect.done_at >= lag]
