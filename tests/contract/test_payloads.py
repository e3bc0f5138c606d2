"""What cannot be stored is refused on submission, with the same message by every store."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ErrorClass, Holdfast, JobFailed, JobFilter, JobFunction, Retention, Retryable
from holdfast.core.durations import instant_in_utc
from holdfast.core.errors import SubmitError
from holdfast.core.jobs.job import Receipt
from holdfast.errors import ConfigError, PayloadInvalid, PayloadTooLarge


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


EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
BEYOND = {
    "the last instant, west": datetime.max.replace(tzinfo=WEST),
    "the last instant, utc": datetime.max.replace(tzinfo=UTC),
    "the last day, west": datetime(9999, 12, 31, tzinfo=WEST),
    "the first instant, east": datetime.min.replace(tzinfo=EAST),
    "the first instant, utc": datetime.min.replace(tzinfo=UTC),
    "the first day, west": datetime(1, 1, 1, 11, tzinfo=WEST),
}
WITHIN = {
    "the last day, east": datetime(9999, 12, 31, 14, tzinfo=EAST),
    "the second day, utc": datetime(1, 1, 2, tzinfo=UTC),
    "before 1970": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=EAST),
    "a century": datetime(2100, 2, 28, tzinfo=WEST),
}
REFUSED = (ValueError, asyncpg.DataError)
"""What a driver raises for a value that it cannot send."""

TOO_LONG = {
    "the longest timedelta": timedelta.max,
    "a microsecond too long": timedelta(days=36_500, microseconds=1),
}


@pytest.mark.parametrize("run_at", BEYOND.values(), ids=BEYOND)
async def test_an_instant_at_an_end_of_the_calendar_is_refused(
    echo: JobFunction[[Any], Any], run_at: datetime
) -> None:
    with pytest.raises(PayloadInvalid, match="run_at must lie between 0001-01-02 and 9999-12-31"):
        echo.options(run_at=run_at)


@pytest.mark.parametrize("run_at", WITHIN.values(), ids=WITHIN)
async def test_every_other_instant_is_stored_and_found_again(
    hold: Holdfast, echo: JobFunction[[Any], Any], run_at: datetime
) -> None:
    job = await echo.options(run_at=run_at).submit(1)
    together = await echo.options(run_at=run_at).submit_many([(2,), (3,)])

    assert {found.id for found in await hold.find()} == {job.id, *(each.id for each in together)}
    assert (await job.read()).retry_after in (run_at, None)  # one that is past is ready at once


@given(st.datetimes(timezones=st.sampled_from([UTC, EAST, WEST])))
def test_an_instant_is_refused_or_can_be_converted(run_at: datetime) -> None:
    try:
        passed = instant_in_utc(run_at)
    except ValueError:
        return

    assert passed == run_at
    assert passed.utcoffset() == timedelta(0)


@pytest.mark.parametrize("length", TOO_LONG.values(), ids=TOO_LONG)
async def test_a_length_that_no_store_could_add_is_refused_wherever_one_is_given(
    hold: Holdfast, echo: JobFunction[[Any], Any], length: timedelta
) -> None:
    with pytest.raises(PayloadInvalid, match="at most 36,500 days"):
        echo.options(delay=length)
    with pytest.raises(PayloadInvalid, match="at most 36,500 days"):
        echo.options(deadline=length)
    with pytest.raises(ConfigError, match="at most 36,500 days"):
        hold.every(length)
    with pytest.raises(ConfigError, match="at most 36,500 days"):
        hold.job("late", deadline=length)(lambda: None)
    with pytest.raises(ConfigError, match="at most 36,500 days"):
        hold.job("late", timeout=length)(lambda: None)
    with pytest.raises(ValueError, match="at most 36,500 days"):
        JobFilter(at_risk=length)
    with pytest.raises(ValueError, match="at most 36,500 days"):
        Retention(letters=length)
    with pytest.raises(ValueError, match="at most 36,500 days"):
        await hold.dead_letters.archive(older_than=length)


async def test_a_job_that_would_sleep_too_long_fails_and_says_so(hold: Holdfast) -> None:
    @hold.job("asleep", attempts=1)
    async def asleep() -> None:
        await hold.sleep(timedelta.max)

    @hold.job("waiting", attempts=1)
    async def waiting() -> None:
        await hold.wait_for("go", timeout=timedelta.max)

    async with hold.worker(poll=0.05):
        for job in (await asleep.submit(), await waiting.submit()):
            with pytest.raises(JobFailed, match="at most 36,500 days"):
                await job.result(timeout=20)


async def test_a_service_that_asks_for_too_long_a_pause_gets_the_longest_one(hold: Holdfast) -> None:
    @hold.job("busy", attempts=2)
    async def busy() -> None:
        raise Retryable("not in this age", after=timedelta.max)

    async with hold.worker(poll=0.05):
        job = await busy.submit()
        async with asyncio.timeout(60):
            while (parked := await job.read()).retry_after is None:
                await asyncio.sleep(0.01)

    assert parked.retry_after - parked.updated_at <= timedelta(seconds=300)


async def test_one_that_the_store_cannot_take_fails_alone_among_those_of_its_batch(
    hold: Holdfast, echo: JobFunction[[Any], Any]
) -> None:
    good = [echo._submission("[1]") for _ in range(5)]
    poison = echo._submission("[1]")._replace(owner="a\ud800b")  # as if the door had let it in
    submit = hold._submitter.submit

    answers = await asyncio.gather(
        *(submit(item) for item in (*good[:3], poison, *good[3:])), return_exceptions=True
    )

    assert isinstance(answers.pop(3), REFUSED)
    assert answers == [Receipt(item.id) for item in good]
    assert {job.id for job in await hold.find()} == {item.id for item in good}


async def test_a_list_of_one_caller_is_refused_as_a_whole(
    hold: Holdfast, echo: JobFunction[[Any], Any]
) -> None:
    batch = [echo._submission("[1]"), echo._submission("[1]")._replace(owner="a\ud800b")]

    with pytest.raises(REFUSED, match="surrogate"):
        await hold._submitter.submit_many(batch)

    assert await hold.find() == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_an_instant_that_an_earlier_version_let_in_does_not_keep_others_from_being_found(
    hold: Holdfast, echo: JobFunction[[Any], Any]
) -> None:
    old = [echo._submission("[1]")._replace(run_at=run_at) for run_at in BEYOND.values()]
    await hold.runtime.store.submit(old)
    job = await echo.submit(1)

    found = {each.id for each in await hold.find()}

    assert found == {job.id, *(each.id for each in old)}
