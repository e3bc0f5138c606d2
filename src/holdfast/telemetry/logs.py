"""Structured log lines, and the job in the log lines of its own function.

Every line has `event` and what applies of `job_id`, `name`, `queue`, `status`, `attempt`, `duration_ms`,
`gateway_status`, `error_class`, `error_code` and `breaker`. Routine changes are DEBUG.
"""

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TextIO

import structlog
from structlog.contextvars import bind_contextvars, get_contextvars

from holdfast.core.jobs.job import Claim

LOGGER = "holdfast"
"""The standard logger that lines go to where the application has configured `logging`."""

JOB_FIELDS = ("job_id", "job_name", "job_queue")
"""The fields that are bound in structlog's context variables while the function of a job runs."""


# Structlog's own variables of these names, set directly: every job binds them, and `bind_contextvars` takes several times as long.
_JOB_ID, _JOB_NAME, _JOB_QUEUE = (
    token.var for token in copy_context().run(bind_contextvars, **dict.fromkeys(JOB_FIELDS, "")).values()
)


def bind_job(claim: Claim) -> None:
    """Bind the job in structlog's context variables; `JobContextFilter` reads it from there.

    Setting a variable costs far more than reading it: a value that is already bound, for an earlier job of that name
    and queue in a copied context, is not set again.
    """
    _JOB_ID.set(claim.id)
    if _JOB_NAME.get("") != claim.name:
        _JOB_NAME.set(claim.name)
    if _JOB_QUEUE.get("") != claim.queue:
        _JOB_QUEUE.set(claim.queue)


class JobContextFilter(logging.Filter):
    """Gives every record `job_id`, `job_name` and `job_queue`; outside a job they are empty.

    Add it to a handler, not to a logger: a handler's filter sees the records of all loggers below it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields, unless the record already has them, and accept the record."""
        bound = get_contextvars()
        for name in JOB_FIELDS:
            if not hasattr(record, name):
                setattr(record, name, bound.get(name, ""))
        return True


class _LossyStream:
    """A stream whose reader may close it: a line that cannot be written is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class StructuredLogger:
    """Writes lines from *level* upwards: to the standard `logging` where it is configured, else to stderr.

    `logging` counts as configured if the root logger, or the one named `holdfast`, has a handler when the first line
    is written. This is decided once: a library that calls `logging.warning()` configures it as a side effect, and
    the destination must not change while the process runs. Given a *stream*, lines always go there: one JSON
    object each, or text.
    """

    def __init__(self, *, level: str = "INFO", stream: TextIO | None = None, as_json: bool = True) -> None:
        self._level = logging.getLevelNamesMapping()[level.upper()]
        self._stream = stream
        self._as_json = as_json
        self._target: Any = None

    def raise_level(self, level: str) -> None:
        """Write lines from *level* upwards, unless only higher ones are written already."""
        self._level = max(self._level, logging.getLevelNamesMapping()[level])
        self._target = None

    @property
    def _log(self) -> Any:
        if self._target is None:
            logger = logging.getLogger(LOGGER)
            if self._stream is None and logger.hasHandlers():
                self._target = _StandardLog(logger, self._level)
            else:
                self._target = _own_log(self._stream or sys.stderr, self._level, as_json=self._as_json)
        return self._target

    @property
    def verbose(self) -> bool:
        return bool(self._log.is_enabled_for(logging.DEBUG))

    def debug(self, event: str, **fields: Any) -> None:
        self._log.debug(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log.info(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log.warning(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log.error(event, **fields)


def _own_log(stream: TextIO, level: int, *, as_json: bool) -> Any:
    return structlog.wrap_logger(
        structlog.WriteLogger(_LossyStream(stream)),  # type: ignore[arg-type]  # it only writes and flushes
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer()
            if as_json
            else structlog.dev.ConsoleRenderer(colors=stream.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    ).bind()


class _StandardLog:
    """Passes lines to a standard logger: the message has all fields, and the record has them as `holdfast`.

    They are a single attribute of the record: a record already has an attribute `name`.
    """

    def __init__(self, logger: logging.Logger, level: int) -> None:
        self._logger = logger
        self._level = level

    def is_enabled_for(self, level: int) -> bool:
        return level >= self._level and self._logger.isEnabledFor(level)

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        if not self.is_enabled_for(level):
            return
        shown = {name: value for name, value in fields.items() if name != "stack"}
        text = " ".join([event, *(f"{name}={_format_value(value)}" for name, value in shown.items())])
        record = self._logger.makeRecord(
            LOGGER, level, __file__, 0, text, (), None, extra={"holdfast": {"event": event, **shown}}
        )
        record.exc_text = fields.get("stack")  # formatters append it to the message
        self._logger.handle(record)


def _format_value(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(character in text for character in ' ="\n') else text
