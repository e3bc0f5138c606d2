"""Subscriptions to the hints of a store, by their kind."""

from collections.abc import Callable, Collection

from holdfast.ports import Hint, HintKind


class Subscriptions:
    """Passes each hint to the listeners of its kind."""

    def __init__(self) -> None:
        self._listeners: dict[HintKind, list[Callable[[Hint], None]]] = {kind: [] for kind in HintKind}

    def subscribe(self, listener: Callable[[Hint], None], kinds: Collection[HintKind]) -> Callable[[], None]:
        """Call *listener* with hints of these *kinds* until the returned function is called."""
        for kind in kinds:
            self._listeners[kind].append(listener)

        def unsubscribe() -> None:
            for kind in kinds:
                self._listeners[kind].remove(listener)

        return unsubscribe

    def exist_for(self, kind: HintKind) -> bool:
        """Whether a hint of this kind has a listener."""
        return bool(self._listeners[kind])

    def notify(self, hint: Hint) -> None:
        """Pass *hint* to the listeners of its kind."""
        for listener in list(self._listeners[hint.kind]):
            listener(hint)
