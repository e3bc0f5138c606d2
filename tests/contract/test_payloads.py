"""What cannot be stored is refused at the door, with the same words by every store."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, JobFunction, PayloadInvalid, PayloadTooLarge
from holdfast.core.errors import SubmitError


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


POISON: dict[str, tuple[Callable[[], Any], type[SubmitError], str]] = {
    "nul": (lambda: "a\0b", PayloadInvalid, "NUL character"),
    "nul-in-a-key": (lambda: {"a\0b": 1}, PayloadInvalid, "NUL character"),
    "lone-surrogate": (lambda: "a\ud800b", PayloadInvalid, "surrogate|Unicode"),
    "nan": (lambda: [float("nan")], PayloadInvalid, "JSON"),
    "infinity": (lambda: {"x": float("-inf")}, PayloadInvalid, "JSON"),
    "100-000-brackets": (lambda: nested(100_000), PayloadInvalid, "nested too deeply|JSON"),
    "101-brackets": (lambda: nested(101), PayloadInvalid, "nested too deeply"),
    "5-000-digits": (lambda: 10**5_000, PayloadInvalid, "JSON"),
    "naive-datetime": (lambda: datetime(2024, 2, 29), PayloadInvalid, "time zone"),
    "50-megabytes": (lambda: "x" * 50_000_000, PayloadTooLarge, "limit is 1,000,000"),
    "bytes": (lambda: b"\xff", PayloadInvalid, "JSON"),
    "an-object": (object, PayloadInvalid, "JSON"),
}

HARMLESS: dict[str, Any] = {
    "brackets-in-text": "[{" * 100_000,
    "escaped-nul": "\\u0000 and \\\\u0000",
    "astral": "🜁 é \u2028 \x1b[2J",
    "100-levels": nested(99),
    "a-long-number": 10**300,
    "a-tiny-number": 5e-324,
    "sql": "'; DROP TABLE holdfast_jobs; --",
    "nothing": None,
}


@pytest.fixture
def echo(hold: Holdfast) -> JobFunction[[Any], Any]:
    """A job that returns what it is given."""

    @hold.job("echo")
    async def echo(value: Any) -> Any:
        return value

    return echo


@pytest.mark.parametrize("poison", POISON)
async def test_a_poisoned_argument_is_refused_and_nothing_is_stored(
    hold: Holdfast, echo: JobFunction[[Any], Any], poison: str
) -> None:
    make, refusal, words = POISON[poison]

    with pytest.raises(refusal, match=words) as raised:
        await echo.submit(make())

    assert "job 'echo'" in str(raised.value)
    assert len(str(raised.value)) < 500
    assert await hold.find() == []


@pytest.mark.parametrize("harmless", HARMLESS)
async def test_what_only_looks_dangerous_comes_back_as_it_was(
    hold: Holdfast, echo: JobFunction[[Any], Any], harmless: str
) -> None:
    async with hold.worker(poll=0.05):
        job = await echo.submit(HARMLESS[harmless])

        assert await job.result(timeout=20) == HARMLESS[harmless]


@pytest.mark.parametrize(
    "poison", ["nul", "lone-surrogate", "nan", "101-brackets", "naive-datetime", "50-megabytes"]
)
async def test_a_poisoned_result_fails_its_job_at_once_and_no_neighbour(hold: Holdfast, poison: str) -> None:
    @hold.job("spoil")
    async def spoil() -> Any:
        return POISON[poison][0]()

    @hold.job("keep")
    async def keep() -> str:
        return "kept"

    async with hold.worker(poll=0.05):
        bad, good = await spoil.submit(), await keep.submit()
        with pytest.raises(JobFailed) as raised:
            await bad.result(timeout=20)

        assert await good.result(timeout=20) == "kept"
    assert raised.value.failure.error_class in (ErrorClass.SCHEMA_INVALID, ErrorClass.TOO_LARGE)
    assert (await bad.read()).attempt == 1


@pytest.mark.parametrize("key", ["a\0b", "a\ud800b", "x" * 201, "line\nbreak"])
async def test_a_key_that_cannot_be_stored_is_refused(echo: JobFunction[[Any], Any], key: str) -> None:
    for options in ({"key": key}, {"subject": key, "version": 1}, {"owner": key}, {"queue": key}):
        with pytest.raises(PayloadInvalid, match="printable text"):
            echo.options(**options)


async def test_an_argument_that_does_not_fit_the_function_is_refused(hold: Holdfast) -> None:
    @hold.job("add")
    async def add(a: int, b: int = 2) -> int:
        return a + b

    for wrong in (("one",), (), (1, 2, 3), (1.5,)):
        with pytest.raises(PayloadInvalid, match="job 'add'"):
            await add.submit(*wrong)

    assert await hold.find() == []


async def test_an_option_that_no_store_can_hold_is_refused_before_it_spoils_a_batch(
    echo: JobFunction[[Any], Any],
) -> None:
    with pytest.raises(PayloadInvalid, match="64 bits"):
        echo.options(subject="s", version=2**63)
    with pytest.raises(PayloadInvalid, match="36,500 days"):
        echo.options(delay=timedelta.max)
    with pytest.raises(PayloadInvalid, match="time zone"):
        echo.options(run_at=datetime(2024, 2, 29))
    with pytest.raises(PayloadInvalid, match="priority"):
        echo.options(priority=32_768)


async def test_the_outermost_options_that_are_allowed_are_stored(
    hold: Holdfast, echo: JobFunction[[Any], Any]
) -> None:
    job = await echo.options(subject="s", version=2**63 - 1, priority=-32_768, delay="36500d").submit(1)
    last = await echo.options(run_at=datetime(9999, 12, 31, tzinfo=UTC), key="é" * 200).submit(2)

    kept = await job.read()
    assert (kept.version, kept.priority) == (2**63 - 1, -32_768)
    assert (await last.read()).retry_after == datetime(9999, 12, 31, tzinfo=UTC)
    assert len(await hold.find()) == 2
