"""Where the engine says what happened, in lines that people read and machines search."""

from typing import Any, Protocol


class Logger(Protocol):
    """A structured log. Fields are values that were redacted before."""

    @property
    def verbose(self) -> bool:
        """Whether routine lines are logged: ask once per batch, to save rendering them."""
        ...

    def debug(self, event: str, **fields: Any) -> None:
        """Note a routine change."""
        ...

    def info(self, event: str, **fields: Any) -> None:
        """Note a change that an operator may want to know."""
        ...

    def warning(self, event: str, **fields: Any) -> None:
        """Note something that needs a look."""
        ...

    def error(self, event: str, **fields: Any) -> None:
        """Note something that needs a hand."""
        ...
