"""Where log lines go: to the standard `logging` where it is configured, else to a stream of their own."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.telemetry.logs import StructuredLogger


@contextmanager
def handlers(*added: logging.Handler, level: int = logging.DEBUG) -> Iterator[None]:
    """Have exactly these handlers on the root logger: pytest has some of its own."""
    root = logging.getLogger()
    before, root.handlers, before_level = root.handlers, list(added), root.level
    root.setLevel(level)
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(before_level)


class Kept(logging.Handler):
    """A handler that keeps its records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_lines_go_to_a_logger_that_the_application_has_configured(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Kept()
    with handlers(kept):
        StructuredLogger().warning("job failed", job_id="1", name="grade", queue="default", message="no luck")

    [record] = kept.records
    fields = {"event": "job failed", "job_id": "1", "name": "grade", "queue": "default", "message": "no luck"}
    assert (record.name, record.levelname, vars(record)["holdfast"]) == ("holdfast", "WARNING", fields)
    assert record.getMessage() == "job failed job_id=1 name=grade queue=default message='no luck'"
    assert capsys.readouterr() == ("", "")


def test_without_a_handler_lines_are_json_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with handlers():
        StructuredLogger().info("worker started", slots=2)

    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["slots"], line["level"]) == ("worker started", 2, "info")


def test_lines_do_not_change_their_place_when_a_library_configures_logging_meanwhile() -> None:
    kept, stream = Kept(), io.StringIO()
    with handlers():
        logger = StructuredLogger(level="DEBUG", stream=None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stderr", stream)
            logger.info("worker started")
            with handlers(kept):
                logger.info("worker stopped")

    assert kept.records == []
    assert len(stream.getvalue().splitlines()) == 2


def test_a_stream_that_was_given_has_the_lines_whatever_is_configured() -> None:
    kept, stream = Kept(), io.StringIO()
    with handlers(kept):
        StructuredLogger(stream=stream).info("worker started")

    assert kept.records == []
    assert "worker started" in stream.getvalue()


@pytest.mark.parametrize(
    ("own", "root", "verbose"),
    [("DEBUG", logging.DEBUG, True), ("INFO", logging.DEBUG, False), ("DEBUG", logging.INFO, False)],
)
def test_both_levels_decide_what_is_logged(own: str, root: int, verbose: bool) -> None:
    kept = Kept()
    with handlers(kept, level=root):
        logger = StructuredLogger(level=own)
        logger.debug("job completed")
        logger.error("worker failed")

        assert logger.verbose is verbose
    assert len(kept.records) == 1 + verbose


def test_a_stack_is_below_the_line_in_whatever_format() -> None:
    stack, plain, own = 'File "app.py", line 3, in grade', io.StringIO(), io.StringIO()
    with handlers(logging.StreamHandler(plain)):
        StructuredLogger().warning("job failed", job_id="1", stack=stack)
    StructuredLogger(stream=own, as_json=False).warning("job failed", job_id="1", stack=stack)

    assert plain.getvalue() == f"job failed job_id=1\n{stack}\n"
    assert own.getvalue().splitlines()[-1] == stack
    assert len(own.getvalue().splitlines()) == 2
