"""The shop as its customers see it, with a real worker."""

import asyncio
import os
import tempfile
from collections.abc import Iterator

import pytest

os.chdir(tempfile.mkdtemp(prefix="shop-"))  # the databases of the shop are in the current folder

from flask.testing import FlaskClient  # noqa: E402
from shop import create_app, hold  # noqa: E402


@pytest.fixture
def client() -> Iterator[FlaskClient]:
    yield create_app().test_client()
    hold.close_sync()


async def work_until_it_has_ended(job_id: str) -> None:
    async with hold, hold.worker():
        await hold.wait(job_id)


def test_a_worker_confirms_an_order(client: FlaskClient) -> None:
    job_id = client.post("/orders/book").json["job"]
    assert client.get(f"/jobs/{job_id}").json == {"status": "queued"}

    asyncio.run(work_until_it_has_ended(job_id))

    assert client.get(f"/jobs/{job_id}").json == {"status": "completed"}


def test_an_order_that_is_refused_leaves_no_job(client: FlaskClient) -> None:
    client.post("/orders/lamp")
    before = len(hold.find_sync())

    assert client.post("/orders/lamp").status_code == 409

    assert len(hold.find_sync()) == before


def test_a_job_that_is_not_there_is_not_found(client: FlaskClient) -> None:
    assert client.get("/jobs/none").status_code == 404
