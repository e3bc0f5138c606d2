"""The provider's books: which effects took place, and under which keys."""

from collections import defaultdict
from dataclasses import dataclass

from holdfast_simulator.http import Answer
from holdfast_simulator.script import Script


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that took place in the outside world, with the answer that told of it.

    `done_at` is in seconds of the provider's own monotonic clock.
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
        """Return the id that the next effect is to bear."""
        return f"eff_{len(self._by_id) + 1:06}"

    def add(self, effect: Effect) -> None:
        """Enter an effect."""
        self._by_id[effect.id] = effect
        if effect.key is not None:
            self._by_key[effect.key].append(effect)

    def first(self, key: str | None) -> Effect | None:
        """Return the first effect under a key, however long ago."""
        effects = self._by_key.get(key) if key is not None else None
        return effects[0] if effects else None

    def remembered(self, key: str | None, script: Script, *, now: float) -> Effect | None:
        """Return the effect whose answer a call with this key is given again, if the script honours keys."""
        effects = self._by_key.get(key) if key is not None else None
        if not effects or not script.honours_keys:
            return None
        latest, window = effects[-1], script.key_window
        # The window runs from the newest effect: once it has passed, the key begins anew.
        forgotten = window is not None and now - latest.done_at >= window.total_seconds()
        return None if forgotten else latest

    def get(self, effect_id: str) -> Effect | None:
        """Return an effect by its id; no lag applies."""
        return self._by_id.get(effect_id)

    def visible(self, key: str, script: Script, *, now: float) -> list[Effect]:
        """Return the effects under a key that a lookup at *now* finds."""
        lag = script.lookup_lag.total_seconds()
        return [effect for effect in self._by_key.get(key, ()) if now - effect.done_at >= lag]
