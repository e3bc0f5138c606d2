"""Structured log lines, and the job in the log lines of its own function.

Every line has `event` and what applies of `job_id`, `name`, `queue`, `status`, `attempt`, `duration_ms`,
`gateway_status`, `error_class`, `error_code` and `breaker`. Routine changes are DEBUG.

Structlog is imported where the first line is written or the first job runs: it loads rich, which most processes that
submit jobs, and most commands, do not need.
"""

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any, TextIO

from holdfast.core.jobs.job import Claim

LOGGER = "holdfast"
"""The standard logger that lines go to where the application has configured `logging`."""

JOB_FIELDS = ("job_id", "job_name", "job_queue")
"""The fields that are bound in structlog's context variables while the function of a job runs."""


@cache
def _job_variables() -> tuple[ContextVar[str], ...]:
    """Return structlog's own variables of `JOB_FIELDS`, in their order.

    They are set directly: every job binds them, and `bind_contextvars` takes several times as long.
    """
    from structlog.contextvars import bind_contextvars  # noqa: PLC0415 - see the top of the module

    tokens = copy_context().run(bind_contextvars, **dict.fromkeys(JOB_FIELDS, ""))
    return tuple(tokens[name].var for name in JOB_FIELDS)


def bind_job(claim: Claim) -> None:
    """Bind the job in structlog's context variables; `JobContextFilter` reads it from there.

    Setting a variable costs far more than reading it: a value that is already bound, for an earlier job of that name
    and queue in a copied context, is not set again.
    """
    job_id, name, queue = _job_variables()
    job_id.set(claim.id)
    if name.get("") != claim.name:
        name.set(claim.name)
    if queue.get("") != claim.queue:
        queue.set(claim.queue)


class JobContextFilter(logging.Filter):
    """Gives every record `job_id`, `job_name` and `job_queue`; outside a job they are empty.

    Add it to a handler, not to a logger: a handler's filter sees the records of all loggers below it.
    """

    def __init__(self, name: str = "") -> None:
        from structlog.contextvars import get_contextvars  # noqa: PLC0415 - see the top of the module

        super().__init__(name)
        self._bound = get_contextvars

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields, unless the record already has them, and accept the record."""
        bound = self._bound()
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
    import structlog  # noqa: PLC0415 - see the top of the module

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
