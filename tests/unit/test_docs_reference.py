"""What the pages list is what the code has."""

import inspect
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
import holdfast.celery as holdfast_celery
from holdfast import (
    Backoff,
    Holdfast,
    HoldfastError,
    Job,
    JobFunction,
    JobHandle,
    Status,
    errors,
    operations,
    types,
)
from holdfast.core import errors as core_errors
from holdfast.core.failures.failure import MEANINGS, Failure, Meaning
from holdfast.core.jobs.states import ENDED, GRAPH
from holdfast.core.jobs.transitions import AttemptEnd
from holdfast.core.providers.breaker_state import STATES
from holdfast.operations import ProviderStatus
from holdfast.telemetry.metric_catalog import COUNTERS
from holdfast.types import Current, EventKind, Provider, PublicCode, StageFunction
from tests.pages import DOCS, ROOT, read, table, words

SERVICES = [
    operations.Database,
    operations.DeadLetterService,
    operations.JobService,
    operations.OutboxService,
    operations.ProviderService,
    operations.QueueService,
    operations.ScheduleService,
]

API = DOCS / "reference/api.md"
FAILURES = DOCS / "reference/failures.md"
EVENTS = DOCS / "reference/events-and-states.md"
WATCHING = DOCS / "guides/watching.md"
SOURCE = ROOT / "src/holdfast"


def code_words(page: Path) -> set[str]:
    """Return every identifier that the page shows as code."""
    text = read(page)
    shown = re.findall("```[^\n]*\n(.*?)```", text, re.DOTALL) + re.findall("`([^`\n]+)`", text)
    return set(re.findall(r"\w+", " ".join(shown)))


@pytest.mark.parametrize(
    "module", [holdfast, errors, operations, types, holdfast_celery], ids=lambda module: module.__name__
)
def test_every_public_name_is_in_the_reference(module: ModuleType) -> None:
    assert [name for name in module.__all__ if name not in code_words(API)] == []


def test_a_public_name_has_one_home_except_errors_that_applications_raise_or_catch() -> None:
    modules = (holdfast, errors, operations, types)
    homes = Counter(name for module in modules for name in module.__all__)

    assert {name for name, count in homes.items() if count > 1} == {
        "HoldfastError",
        "JobFailed",
        "Permanent",
        "Retryable",
    }


def test_every_exception_of_the_library_is_public() -> None:
    tree = {
        name
        for name, kind in vars(core_errors).items()
        if inspect.isclass(kind) and issubclass(kind, HoldfastError)
    }

    assert tree == set(errors.__all__)


@pytest.mark.parametrize(
    "kind", [Holdfast, JobFunction, StageFunction, JobHandle, Backoff, Provider, *SERVICES]
)
def test_every_public_method_is_in_the_reference(kind: type) -> None:
    methods = [name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")]

    assert [name for name in methods if name not in code_words(API)] == []


@pytest.mark.parametrize(
    "function",
    [
        Holdfast.__init__,
        Holdfast.job,
        Holdfast.stage,
        Holdfast.provider,
        Holdfast.worker,
        JobFunction.options,
        holdfast.rule,
    ],
    ids=lambda function: function.__qualname__,
)
def test_every_parameter_is_in_the_reference(function: Callable[..., Any]) -> None:
    names = [name for name in inspect.signature(function).parameters if name != "self"]

    assert [name for name in names if name not in code_words(API)] == []


def test_every_name_and_option_of_the_ready_clients_is_in_the_reference() -> None:
    from holdfast import providers
    from holdfast.providers.http import HttpClient

    kinds = [HttpClient, *(getattr(providers, name) for name in providers.__all__)]
    verbs = [
        verb
        for kind in kinds
        for name, verb in vars(kind).items()
        if inspect.isfunction(verb) and (name == "__init__" or not name.startswith("_"))
    ]
    names = {parameter for verb in verbs for parameter in inspect.signature(verb).parameters} - {"self"}
    names |= {*providers.__all__, *(verb.__name__ for verb in verbs), *providers.Transcript.model_fields}

    assert {name for name in names if not name.startswith("_")} - code_words(API) == set()


@pytest.mark.parametrize(
    "kind",
    [
        Current,
        Failure,
        holdfast.JobFilter,
        holdfast.Event,
        holdfast.Breaker,
        ProviderStatus,
    ],
)
def test_every_field_of_a_value_is_in_the_reference(kind: Any) -> None:
    assert [name for name in kind.__dataclass_fields__ if name not in code_words(API)] == []


def test_every_field_of_a_job_is_in_the_reference() -> None:
    documented = code_words(API) | code_words(EVENTS)

    missing = [name for name in Job.__dataclass_fields__ if name not in documented]

    assert missing == []


@pytest.mark.parametrize(
    ("page", "heading"), [(API, "Backoff"), (DOCS / "guides/retries-and-failures.md", "Choose a wait")]
)
def test_the_shapes_of_a_backoff_are_shown_with_their_defaults(page: Path, heading: str) -> None:
    calls = [words(row[0])[0] for row in table(page, heading)]
    shown = {call.partition("(")[0]: call for call in calls}

    for shape in ("exponential", "additive_jitter", "full_jitter"):
        call = shown[f"Backoff.{shape}"]
        assert eval(call, {"Backoff": Backoff}) == getattr(Backoff, shape)()
        assert re.findall(r"(\w+)=", call) == list(inspect.signature(getattr(Backoff, shape)).parameters)


def test_the_table_of_failures_is_the_one_in_the_code() -> None:
    rows = table(FAILURES, "The table")

    assert {words(row[0])[0]: (words(row[2])[0], *row[3:]) for row in rows} == {
        error_class.value: (meaning.code, _again(meaning), meaning.sent, meaning.scope, meaning.verdict)
        for error_class, meaning in MEANINGS.items()
    }


def _again(meaning: Meaning) -> str:
    if not meaning.retryable:
        return "no"
    return {None: "yes", 2: "twice"}[meaning.retries]


def test_every_public_code_is_explained() -> None:
    rows = table(FAILURES, "Codes")

    assert sorted(code for row in rows for code in words(row[0])) == sorted(PublicCode)


def test_the_states_are_those_of_the_graph() -> None:
    rows = table(EVENTS, "States")

    assert {row[0].strip("`"): set(words(row[2])) for row in rows} == {
        status.value: {target.value for target in targets} for status, targets in GRAPH.items()
    }


def test_every_kind_of_event_is_explained() -> None:
    rows = table(EVENTS, "Events")

    assert {words(row[0])[0] for row in rows} == {kind.value for kind in EventKind}


def test_the_outcome_of_an_attempt_is_named_in_one_vocabulary() -> None:
    rows = table(EVENTS, "The same in logs, metrics and traces")

    assert {word for row in rows for word in words(row[3])} == {end.value for end in AttemptEnd}
    assert {words(row[2])[0] for row in rows} <= {f"holdfast_{name}_total" for name in COUNTERS}
    assert {words(row[1])[0] for row in rows} <= {line for line, _ in log_lines_in_code()}
    assert {words(row[4])[0] for row in rows} <= {kind.value for kind in EventKind}


def log_lines_in_code() -> set[tuple[str, str]]:
    """Find the events that the code logs, each with its level."""
    written = re.compile(r"logger\.(debug|info|warning|error)\(\s*\"([^\"]+)\"")
    return {
        (line, level)
        for path in SOURCE.rglob("*.py")
        for level, line in written.findall(path.read_text(encoding="utf-8"))
    }


def test_every_log_line_is_explained_with_its_level() -> None:
    of_providers = {(f"provider {kind}", "info") for kind in happenings_of_providers() if kind != "opened"}
    of_providers |= {("provider opened", level) for level in ("info", "warning", "error")}

    documented = {(line, row[1]) for row in table(WATCHING, "Log lines") for line in words(row[0])}

    assert documented == log_lines_in_code() | of_providers


def happenings_of_providers() -> set[str]:
    """Return the log lines of providers in the code; the log has it under a name that is put together."""
    written = re.compile(r"\b(?:HistoryEntry|BreakerChange)\(\s*\"(\w+)\"")
    return {
        kind for path in SOURCE.rglob("*.py") for kind in written.findall(path.read_text(encoding="utf-8"))
    }


def test_everything_that_happens_to_a_provider_is_explained() -> None:
    rows = table(EVENTS, "Events of a provider")

    assert {words(row[0])[0] for row in rows} == happenings_of_providers()


def test_every_state_of_a_provider_is_explained() -> None:
    rows = table(EVENTS, "States of a provider")

    assert {words(row[0])[0] for row in rows} == set(STATES)
    assert {word for row in rows for word in words(row[2])} <= set(STATES)


def test_every_metric_that_is_counted_has_a_name_and_a_meaning() -> None:
    counted = re.compile(r"(?:metrics\.count\(|counts\[)\s*\"(\w+)\"")
    in_code = {
        name for path in SOURCE.rglob("*.py") for name in counted.findall(path.read_text(encoding="utf-8"))
    } | {f"jobs_{status}" for status in Status if status in ENDED}

    assert in_code
    assert in_code <= set(COUNTERS)


def test_the_options_of_our_sessions_are_explained() -> None:
    asyncpg = pytest.importorskip("asyncpg")
    assert asyncpg
    from holdfast.stores.postgres.connections import SESSION

    documented = {
        name for row in table(DOCS / "guides/postgresql.md", "Connections") for name in words(row[0])
    }

    assert documented == set(SESSION) - {"application_name"}
