"""A job that no worker knows is listed and shown with the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.integration.cli_process import a_worker, an_application, apply_schema, holdfast, submit

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_job_that_no_worker_knows_is_listed_with_the_reason(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    await apply_schema(url)
    an_application(tmp_path)
    job_id = await submit(url, "from-tomorrow")

    with a_worker(cwd=tmp_path, settings={"DATABASE_URL": url, "HOLDFAST_LOG_LEVEL": "debug"}) as worker:
        warning = json.loads(worker.wait_for("job name unknown"))
        worker.wait_for("job parked")

    assert (warning["name"], warning["job_id"]) == ("from-tomorrow", job_id)
    [line] = holdfast("jobs", "list", "--url", url, cwd=tmp_path).stdout.splitlines()
    assert line.endswith("knows no job named 'from-tomorrow'")
    shown = holdfast("jobs", "show", job_id, "--url", url, cwd=tmp_path).stdout
    assert "knows no job named 'from-tomorrow'" in shown
