"""The signature of a durable task: a call that can be delayed, and not be part of a workflow."""

from typing import Any, NoReturn

from celery.canvas import Signature

from holdfast.core.errors import ConfigError


class DurableSignature(Signature):
    """What `task.s(...)` of a durable task returns. A chain, group or chord of it raises `ConfigError`."""

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> "DurableSignature":
        plain = super().clone(args, kwargs, **options)
        made = DurableSignature(dict(plain), app=self._app)
        made._type = self._type
        return made

    partial = clone

    def freeze(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: a chain, a group and a chord freeze their parts to know the ids of the results."""
        self._refuse("a chain, a group or a chord")

    _freeze = freeze

    def __or__(self, other: Any) -> NoReturn:
        self._refuse("a chain")

    def __ror__(self, other: Any) -> NoReturn:
        self._refuse("a chain")

    def link(self, callback: Any) -> NoReturn:
        self._refuse("link()")

    def link_error(self, errback: Any) -> NoReturn:
        self._refuse("link_error()")

    on_error = link_error

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(
            f"task {self.task!r} is durable and cannot be used with {what}; submit the next job inside the task, or "
            "wait for several with job handles"
        )
