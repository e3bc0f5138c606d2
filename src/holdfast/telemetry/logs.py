"""The journal as structured log lines.

Every line has `event` and what applies of `job_id`, `status`, `attempt`, `duration_ms`,
`gateway_status`, `error_class`, `error_code` and `breaker`. Routine changes are DEBUG.
"""

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO

import structlog


class _Lossy:
    """A stream whose reader may go away: a line that cannot be written is lost, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class StructuredJournal:
    """Writes one JSON object per line, or lines for a terminal, from *level* upwards."""

    def __init__(self, *, level: str = "INFO", stream: TextIO | None = None, as_json: bool = True) -> None:
        target = stream or sys.stderr
        number = logging.getLevelNamesMapping()[level.upper()]
        self._verbose = number <= logging.DEBUG
        self._log = structlog.wrap_logger(
            structlog.WriteLogger(_Lossy(target)),  # type: ignore[arg-type]  # all it does is write and flush
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer()
                if as_json
                else structlog.dev.ConsoleRenderer(colors=target.isatty()),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(number),
            cache_logger_on_first_use=True,
        )

    @property
    def verbose(self) -> bool:
        return self._verbose

    def debug(self, event: str, **fields: Any) -> None:
        self._log.debug(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log.info(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log.warning(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log.error(event, **fields)
