"""The shop as its customers see it, with its own worker."""

import os
import tempfile
from collections.abc import Iterator

import pytest

os.chdir(tempfile.mkdtemp(prefix="shop-"))  # the databases of the shop are in the current folder

from fastapi.testclient import TestClient  # noqa: E402
from shop import app, hold  # noqa: E402


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def test_the_worker_of_the_application_confirms_an_order(client: TestClient) -> None:
    job_id = client.post("/orders/book").json()["job"]

    client.portal.call(hold.wait, job_id)

    assert client.get(f"/jobs/{job_id}").json() == {"status": "completed"}


def test_an_order_that_is_refused_leaves_no_job(client: TestClient) -> None:
    client.post("/orders/lamp")
    before = len(client.portal.call(hold.find))

    assert client.post("/orders/lamp").status_code == 409

    assert len(client.portal.call(hold.find)) == before


def test_a_job_that_is_not_there_is_not_found(client: TestClient) -> None:
    assert client.get("/jobs/none").status_code == 404
