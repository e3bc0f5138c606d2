"""The health port of a real worker: whether it lives, whether it works, and its metrics."""

from __future__ import annotations

import re
import signal
import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from holdfast import Holdfast
from tests.integration.cli_process import (
    APPLICATION,
    a_worker,
    an_application,
    apply_schema,
    holdfast,
    submit,
    wait,
)
from tests.integration.http_probe import Health
from tests.pages import DOCS, table, words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Prepare, PrivatePostgres

ANY_PORT = ("--health-port", "0")

BLOCKING = """
import time
from pathlib import Path

from holdfast import Holdfast

hold = Holdfast()


@hold.job("waiting")
async def waiting() -> None:
    print("begun", flush=True)
    while not (Path(__file__).parent / "go").exists():
        time.sleep(0.01)  # as an async handler must not
"""


CALLING = """
llm = hold.provider("llm")


@hold.stage(provider=llm)
async def ask() -> None: ...


@hold.job("asking")
async def asking() -> None:
    await ask()
"""


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


def test_a_worker_that_asks_for_jobs_is_live_and_ready(url: str, folder: Path) -> None:
    with a_worker(*ANY_PORT, cwd=folder, settings={"DATABASE_URL": url}) as worker:
        health = Health(worker)
        ready = health.until(200)

        assert health.ask("/live") == (200, {"live": True})
        assert ready["ready"] is True
        assert ready["worker"] in worker.output
        assert health.host == "127.0.0.1"


async def test_a_worker_that_stops_is_live_and_not_ready(url: str, folder: Path) -> None:
    await submit(url, "waiting")

    with a_worker(*ANY_PORT, cwd=folder, settings={"DATABASE_URL": url}) as worker:
        health = Health(worker)
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker stopping")

        status, answer = health.ask("/ready")

        assert (status, answer["ready"], answer["why"]) == (503, False, "the worker is stopping")
        assert health.ask("/live")[0] == 200
        (folder / "go").touch()
        assert worker.end() == 0


def test_a_worker_is_not_ready_while_its_database_is_away(
    restartable_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    url = restartable_postgres.create_database(apply_schema)

    with a_worker(*ANY_PORT, cwd=an_application(tmp_path), settings={"DATABASE_URL": url}) as worker:
        health = Health(worker)
        health.until(200)
        restartable_postgres.stop("immediate")

        away = health.until(503)

        assert "PostgreSQL" in away["why"]
        assert health.ask("/live")[0] == 200
        assert "holdfast_worker_slots" in health.samples()  # its own metrics are there all the same
        restartable_postgres.start()
        assert health.until(200)["ready"] is True


@pytest.mark.clause("OBS-2")
async def test_the_metrics_of_a_worker_are_there_for_prometheus(url: str, folder: Path) -> None:
    done = await submit(url, "sum", 20)
    refused = await submit(url, "refused", "no")
    await submit(url, "elsewhere")
    await submit(url, "sum", 1, delay="1h")

    with a_worker(*ANY_PORT, "--slots", "7", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        health = Health(worker)
        await wait(url, done)
        await wait(url, refused)
        health.samples_with('holdfast_jobs_failed_total{code="UNKNOWN"}', 1)
        samples = health.samples_with("holdfast_jobs_completed_total", 1)

    assert samples['holdfast_attempt_seconds_count{outcome="completed"}'] == 1
    assert samples['holdfast_queue_depth{queue="default",state="ready"}'] == 0
    assert samples['holdfast_queue_depth{queue="default",state="scheduled"}'] == 1
    assert samples['holdfast_queue_depth{queue="other",state="ready"}'] == 1
    assert samples['holdfast_queue_oldest_ready_seconds{queue="default"}'] == 0
    assert samples['holdfast_queue_oldest_ready_seconds{queue="other"}'] > 0
    assert samples["holdfast_worker_slots"] == 7


@pytest.mark.clause("OBS-2")
async def test_how_a_provider_stands_is_there_for_prometheus(url: str, tmp_path: Path) -> None:
    folder = an_application(tmp_path, APPLICATION + CALLING)
    async with Holdfast(url) as hold:
        hold.provider("llm")
        await hold.providers.pause("llm", actor="ada")
    await submit(url, "asking")

    with a_worker(*ANY_PORT, cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for('"event": "job held"')
        samples = Health(worker).samples_with('holdfast_jobs_held_total{provider="llm"}', 1)

    assert samples['holdfast_provider_state{provider="llm",state="paused"}'] == 1
    assert samples['holdfast_provider_state{provider="llm",state="closed"}'] == 0
    assert samples['holdfast_provider_shut_for_seconds{provider="llm"}'] > 0
    assert samples['holdfast_provider_held{provider="llm"}'] == 1
    assert samples['holdfast_provider_calls_total{outcome="success",provider="llm"}'] == 0


@pytest.mark.clause("OBS-2")
def test_the_page_has_every_series_of_the_reference_and_no_other(url: str, tmp_path: Path) -> None:
    folder = an_application(tmp_path, APPLICATION + CALLING + 'hold.broker("local", print)\n')

    with a_worker(*ANY_PORT, cwd=folder, settings={"DATABASE_URL": url}) as worker:
        samples = Health(worker).samples()

    shown = {re.sub(r"(_bucket|_sum|_count)?({.*})?$", "", series) for series in samples}
    rows = table(DOCS / "reference/metrics.md", "Series")
    assert shown == {words(row[0])[0] for row in rows}


async def test_a_worker_whose_loop_is_blocked_does_not_say_that_it_lives(tmp_path: Path) -> None:
    folder = an_application(tmp_path, BLOCKING)
    url = f"sqlite:///{tmp_path}/jobs.db"

    with a_worker(*ANY_PORT, cwd=folder, settings={"DATABASE_URL": url}) as worker:
        health = Health(worker)
        health.until(200)
        await submit(url, "waiting")
        worker.wait_for("begun")

        with pytest.raises(httpx.TimeoutException):
            health.ask("/live", timeout=0.5)

        (folder / "go").touch()
        assert health.until(200, "/live") == {"live": True}


def test_without_prometheus_the_metrics_say_what_to_install(tmp_path: Path) -> None:
    missing = "import sys\nsys.modules['prometheus_client'] = None\n"
    folder = an_application(tmp_path, missing + APPLICATION)

    with a_worker(*ANY_PORT, cwd=folder, settings={}) as worker:
        status, answer = Health(worker).ask("/metrics")

    assert status == 501
    assert "holdfast[metrics]" in answer["error"]


def test_the_port_can_come_from_the_environment(tmp_path: Path) -> None:
    settings = {"HOLDFAST_WORKER_HEALTH_PORT": "0", "HOLDFAST_WORKER_HEALTH_HOST": "127.0.0.2"}

    with a_worker(cwd=an_application(tmp_path), settings=settings) as worker:
        health = Health(worker)

        assert health.host == "127.0.0.2"
        assert health.ask("/live")[0] == 200


def test_without_being_asked_a_worker_opens_no_port(tmp_path: Path) -> None:
    with a_worker(cwd=an_application(tmp_path), settings={}) as worker:
        worker.signal(signal.SIGTERM)
        worker.end()

    assert "health port open" not in worker.output


@pytest.mark.parametrize("more", [(), ("--processes", "2")], ids=["one", "two"])
def test_a_port_that_is_taken_stops_the_start_with_one_line_and_may_be_free_later(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        done = holdfast("worker", "app:hold", "--health-port", port, *more, cwd=an_application(tmp_path))

    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"holdfast: cannot listen on 127.0.0.1:{port} for health checks")


def test_an_address_that_is_not_ours_stops_the_start_for_good(tmp_path: Path) -> None:
    words = ("--health-host", "192.0.2.1", *ANY_PORT)

    done = holdfast("worker", "app:hold", *words, cwd=an_application(tmp_path))

    assert done.returncode == 2
    assert done.stderr.startswith("holdfast: cannot listen on 192.0.2.1:0 for health checks")


async def test_clients_that_send_rubbish_or_nothing_disturb_no_job(url: str, folder: Path) -> None:
    with a_worker(*ANY_PORT, cwd=folder, settings={"DATABASE_URL": url}) as worker:
        health = Health(worker)
        health.until(200)
        port = health.port
        rude = [socket.create_connection((health.host, port)) for _ in range(40)]
        for number, client in enumerate(rude):
            client.sendall(bytes([number]) * number)

        job = await wait(url, await submit(url, "sum", 20))

        for client in rude:
            client.close()
        assert job.result == "41"
        assert health.until(200)["ready"] is True
