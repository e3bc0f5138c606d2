"""The structured log of the engine."""

from typing import Any, Protocol


class Logger(Protocol):
    """A structured log. Fields are values that were redacted before."""

    @property
    def verbose(self) -> bool:
        """Whether routine lines are logged: ask once per batch, to save rendering them."""
        ...

    def debug(self, event: str, **fields: Any) -> None:
        """Log a routine change."""
        ...

    def info(self, event: str, **fields: Any) -> None:
        """Log a change that may interest an operator."""
        ...

    def warning(self, event: str, **fields: Any) -> None:
        """Log a condition that an operator should look at."""
        ...

    def error(self, event: str, **fields: Any) -> None:
        """Log a condition that requires an operator to act."""
        ...
