"""`holdfast jobs show` shows what it can of a job whose texts are encoded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.integration.cli_process import a_worker, an_application, apply_schema, holdfast, submit, wait

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION = """
from holdfast import Holdfast


class Mirror:
    def encode(self, text):
        return text[::-1]

    decode = encode

    def fingerprint(self, digest):
        return digest


hold = Holdfast(codec=Mirror())


@hold.job("sum")
async def add(number: int) -> int:
    return number + 1
"""


async def test_encoded_texts_are_shown_with_the_codec_and_named_without(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    await apply_schema(url)
    an_application(tmp_path, APPLICATION)
    settings = {"DATABASE_URL": url}
    job_id = await submit(url, "sum", 1_233)
    with a_worker(cwd=tmp_path, settings=settings):
        await wait(url, job_id)

    bare = holdfast("jobs", "show", job_id, cwd=tmp_path, settings=settings)
    machine = holdfast("jobs", "show", job_id, "--json", cwd=tmp_path, settings=settings)
    with_codec = holdfast("jobs", "show", job_id, "--app", "app:hold", cwd=tmp_path, settings=settings)

    assert "result\tencoded (5 characters); --app shows it with the application's codec" in bare.stdout
    assert json.loads(machine.stdout)["result"] == {"encoded": "~4321"}
    assert "result\t1234" in with_codec.stdout
