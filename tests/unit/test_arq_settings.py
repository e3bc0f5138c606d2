"""The classes that the command `arq` runs: what they contain for arq, and which mistakes they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from arq.connections import RedisSettings
from arq.worker import get_kwargs

from holdfast import Holdfast
from holdfast.arq import ArqTransport, IntakeSettings, Settings
from holdfast.arq.intake.enqueued_call import load_body
from holdfast.errors import ConfigError

ADDRESS = "redis://user:secret@redis.example:6380/2"


async def own(ctx: dict[str, Any]) -> None:
    """Do nothing: a function of the team."""


@pytest.fixture
def hold() -> Holdfast:
    made = Holdfast("sqlite:///unused.db")
    made.queue("grading", transport=ArqTransport(ADDRESS, queue="jobs", slots=7))
    return made


def settings(base: type, **attributes: Any) -> dict[str, Any]:
    """Define a class of settings, and return what arq reads of it."""
    return dict(get_kwargs(type("Worker", (base,), attributes)))


def test_redis_queue_and_slots_are_those_of_the_transport(hold: Holdfast) -> None:
    found = settings(Settings, hold=hold)

    assert (found["queue_name"], found["max_jobs"]) == ("jobs", 7)
    assert found["redis_settings"] == RedisSettings(
        "redis.example", 6380, database=2, username="user", password="secret"
    )
    assert (found["max_tries"], found["keep_result"], found["allow_abort_jobs"]) == (1, 0, False)
    assert found["job_completion_wait"] == 30
    assert [function.name for function in found["functions"]] == ["holdfast.run"]


def test_what_the_team_sets_is_kept(hold: Holdfast) -> None:
    found = settings(Settings, hold=hold, functions=[own], max_jobs=3, poll_delay=0.5, job_completion_wait=0)

    assert found["functions"][0] is own
    assert (found["max_jobs"], found["poll_delay"], found["job_completion_wait"]) == (3, 0.5, 0)


@pytest.mark.parametrize("name", ["job_serializer", "max_tries", "keep_result", "allow_abort_jobs"])
def test_what_would_lose_jobs_is_refused_where_the_class_is_defined(hold: Holdfast, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^Worker\.{name} is set by Holdfast, because .*; remove it$"):
        settings(Settings, hold=hold, **{name: 5})


def test_a_worker_without_a_queue_or_a_holdfast_is_refused(hold: Holdfast) -> None:
    with pytest.raises(ConfigError, match="needs the Holdfast of the application"):
        settings(Settings)
    with pytest.raises(ConfigError, match="needs to know its queue"):
        settings(Settings, hold=Holdfast("sqlite:///unused.db"))
    hold.queue("other", transport=ArqTransport(ADDRESS, queue="others", slots=2))
    with pytest.raises(ConfigError, match="needs to know its queue"):
        settings(Settings, hold=hold)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"redis": "http://redis.example", "slots": 1}, "must begin with redis://"),
        ({"redis": "redis://redis.example:port/0", "slots": 1}, "invalid port"),
        ({"redis": ADDRESS, "slots": 0}, "slots=0"),
        ({"redis": ADDRESS, "slots": 1, "resend": "soon"}, "resend='soon'"),
        ({"redis": ADDRESS, "slots": 1, "resend": 0.1}, "a second is the least"),
        ({"redis": ADDRESS, "slots": 1, "queue": ""}, "cannot name a queue"),
    ],
)
def test_a_transport_refuses_what_it_cannot_use(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ArqTransport(given.pop("redis"), **given)


def test_an_intake_has_one_function_and_names_its_jobs(hold: Holdfast) -> None:
    job = hold.job("own")(own_job)

    found = settings(IntakeSettings, hold=hold, jobs=[job], redis_settings=ADDRESS)

    assert [function.name for function in found["functions"]] == ["holdfast.take"]
    assert (found["queue_name"], found["job_timeout"], found["keep_result"]) == ("arq:queue", None, 0)
    with pytest.raises(ConfigError, match="needs the jobs"):
        settings(IntakeSettings, hold=hold, jobs=[own_job], queue_name="other")
    with pytest.raises(ConfigError, match=r"Worker\.functions is set by Holdfast"):
        settings(IntakeSettings, hold=hold, jobs=[job], functions=[own], queue_name="other")


async def own_job() -> None:
    """Do nothing: a job of the team."""


@pytest.mark.parametrize(
    "body",
    [b"", b"\x80\x04.", b"null", b"[]", b'{"et": 1e400}', b'{"et": -5}', b"[" * 100_000, b'{"t": 9999}'],
)
def test_no_body_makes_arq_fail_or_reaches_its_code(body: bytes) -> None:
    call = load_body(body)

    assert (call["f"], call["t"], call["k"]) == ("holdfast.take", None, {})
    assert 0 < call["et"] < 32_503_680_000_000
    assert repr(call["a"][0]) == f"{len(body)} bytes"
