"""Names of jobs, stages, queues, providers, schedules and signals."""

from holdfast.core.errors import ConfigError

LONGEST_NAME = 200
"""Characters that every store keeps in a name, a key or an owner."""


def is_name(text: object) -> bool:
    """Return whether every store can keep *text* as a name: printable, and at most 200 characters."""
    return isinstance(text, str) and len(text) <= LONGEST_NAME and text.isprintable()


def ensure_name(name: str, what: str) -> str:
    """Return *name*. Raises `ConfigError` if it cannot name a *what*."""
    if not name or not is_name(name):
        raise ConfigError(
            f"{name!r} cannot name a {what}; use printable text of 1 to {LONGEST_NAME} characters"
        )
    return name
