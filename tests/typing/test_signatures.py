"""What a type checker knows: jobs and stages keep the signature of the function that they were made from.

Each example says at the end of a line what mypy reports there: the code of an error, or the type
of what is revealed. A line that says nothing is one that mypy has nothing to say about.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

DECLARED = """
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from holdfast import Holdfast, JobHandle
from holdfast.types import Delivery, JobCall

hold = Holdfast("sqlite:///jobs.db")


@dataclass
class Grade:
    points: int


class Request(BaseModel):
    text: str


@hold.job("grade", attempts=4)
async def grade(essay: str, *, strict: bool = False) -> Grade: return Grade(len(essay))

@hold.job("count")
def count(text: str, times: int) -> int: return len(text) * times

@hold.job()
async def forget() -> None: ...

@hold.stage("fetch", attempts=2)
async def fetch(url: str, *, limit: int = 10) -> bytes: return b""

@hold.stage()
def parse(page: bytes) -> list[str]: return []

@hold.job
async def bare(text: str, *, times: int = 1) -> Grade: return Grade(len(text) * times)

@hold.job
def bare_plain(text: str) -> int: return len(text)

@hold.stage
async def bare_stage(url: str) -> bytes: return b""

@hold.stage
def bare_plain_stage(page: bytes) -> list[str]: return []
"""

EXAMPLES = {
    "submit takes what the function takes": """
await grade.submit("text")
await grade.submit(essay="text", strict=True)
await count.submit("text", times=2)
await forget.submit()
""",
    "an argument of the wrong type is an error": """
await grade.submit(5)  # E: arg-type
await grade.submit("text", strict="yes")  # E: arg-type
await count.submit("text", "2")  # E: arg-type
""",
    "an argument that is missing is an error": """
await grade.submit()  # E: call-arg
await count.submit("text")  # E: call-arg
""",
    "an argument too many is an error": """
await grade.submit("text", True)  # E: call-arg
await grade.submit("text", lenient=True)  # E: call-arg
await forget.submit(1)  # E: call-arg
""",
    "the result of an async job is what its function returns": """
job = await grade.submit("text")
reveal_type(job)  # N: JobHandle[Grade]
reveal_type(await job.result())  # N: Grade
reveal_type(await job.result(timeout="5s"))  # N: Grade
points: str = (await job.result()).points  # E: assignment
""",
    "the result of a plain job is what its function returns": """
job = await count.submit("text", 2)
reveal_type(job)  # N: JobHandle[int]
reveal_type(await job.result())  # N: int
""",
    "the result of a job that returns nothing is None": """
job = await forget.submit()
reveal_type(job)  # N: JobHandle[None]
""",
    "options change nothing about the signature": """
reveal_type(await grade.options(key="k", delay="5s").submit("text"))  # N: JobHandle[Grade]
await grade.options(key="k").submit(5)  # E: arg-type
grade.options(keys="k")  # E: call-arg
""",
    "a call that is stored later takes what the function takes": """
reveal_type(grade.call("text", strict=True))  # N: JobCall[Grade]
reveal_type(await grade.options(key="k").call("text").submit())  # N: JobHandle[Grade]
grade.call(5)  # E: arg-type
""",
    "a consumer takes its message, and returns a call or nothing": """
@hold.consumer(Request, queue="requests")
def take(request: Request) -> JobCall[Grade] | None: return grade.call(request.text)

@hold.consumer(Request, queue="more")
async def take_more(request: Request, delivery: Delivery) -> JobCall[Grade]: return grade.call(delivery.message_id)

@hold.consumer(Request, queue="wrong")  # E: arg-type
def take_wrong(request: str) -> None: ...
reveal_type(take(Request(text="text")))  # N: JobCall[Grade] | None
""",
    "many calls give handles with the result's type": """
reveal_type(await count.submit_many([("text", 2), ("more", 3)]))  # N: list[JobHandle[int]]
""",
    "a job still takes what its function takes when it is called": """
await grade("text")
grade(5)  # E: arg-type
count("text")  # E: call-arg
""",
    "an async stage gives an awaitable of its result": """
started: Coroutine[Any, Any, bytes] = fetch("url")
other: Coroutine[Any, Any, str] = fetch("url")  # E: assignment
reveal_type(await fetch("url", limit=3))  # N: bytes
waiting: Awaitable[bytes] = fetch("url")
page: bytes = fetch("url")  # E: assignment
""",
    "a plain stage gives its result": """
reveal_type(parse(b""))  # N: list[str]
reveal_type(await parse.in_thread(b""))  # N: list[str]
""",
    "plain code waits for the same types": """
job = grade.submit_sync("text")
reveal_type(job)  # N: JobHandle[Grade]
reveal_type(job.result_sync(timeout="5s"))  # N: Grade
reveal_type(count.submit_many_sync([("text", 2)]))  # N: list[JobHandle[int]]
reveal_type(hold.read_sync("id", owner="me"))  # N: Job
grade.submit_sync(5)  # E: arg-type
count.submit_sync("text")  # E: call-arg
hold.read_sync(5)  # E: arg-type
""",
    "an async stage gives its result to a plain job": """
reveal_type(fetch.on_loop("url", limit=3))  # N: bytes
fetch.on_loop(5)  # E: arg-type
parse.on_loop(b"")  # E: misc
""",
    "a stage keeps its signature": """
await fetch(5)  # E: arg-type
await fetch("url", limit="3")  # E: arg-type
await fetch()  # E: call-arg
parse("page")  # E: arg-type
await parse.in_thread()  # E: call-arg
await fetch.options(key="k")(5)  # E: arg-type
reveal_type(await fetch.options(key="k")("url"))  # N: bytes
""",
    "a declaration without parentheses keeps the signature": """
reveal_type(await bare.submit("text", times=2))  # N: JobHandle[Grade]
reveal_type(await bare_plain.submit("text"))  # N: JobHandle[int]
reveal_type(await bare_stage("url"))  # N: bytes
reveal_type(bare_plain_stage(b""))  # N: list[str]
await bare.submit(5)  # E: arg-type
await bare_plain.submit()  # E: call-arg
await bare_stage(5)  # E: arg-type
bare_plain_stage("page")  # E: arg-type
""",
    "a schedule keeps the signature of its job, and needs arguments where the job does": """
reveal_type(await hold.every("1h")(forget).submit())  # N: JobHandle[None]
reveal_type(await hold.every("1h", args=("text", 2))(count).submit("text", 3))  # N: JobHandle[int]
reveal_type(await hold.cron("0 9 * * *", kwargs={"essay": "text"})(grade).submit("text"))  # N: JobHandle[Grade]
hold.every("1h")(count)  # E: arg-type
await hold.every("1h", args=("text", 2))(count).submit(5, 3)  # E: arg-type
hold.cron("0 9 * * *", args=5)  # E: call-overload
""",
    "the state of a job is read, and is no attribute": """
job = await count.submit("text", 2)
reveal_type((await job.read()).status)  # N: Status
job.status  # E: attr-defined
job.status_sync()  # E: attr-defined
""",
    "a stage that is not awaited is an error": """
fetch("url")  # E: unused-coroutine
parse.in_thread(b"")  # E: unused-coroutine
""",
    "a handle is as general as its result": """
handle: JobHandle[object] = await count.submit("text", 2)
""",
}


class Remark(NamedTuple):
    """What is said about one line: the code of an error, or a revealed type."""

    line: int
    said: str


def written(example: str) -> str:
    """Put an example into a module: declarations first, then a coroutine around its lines."""
    lines = "".join(f"    {line}\n" for line in example.strip().splitlines())
    return f"{DECLARED}\n\nasync def example() -> None:\n{lines}"


def expected(module: str) -> set[Remark]:
    found = (
        (number, re.search(r"# [EN]: (.+)$", line)) for number, line in enumerate(module.splitlines(), 1)
    )
    return {Remark(number, match[1]) for number, match in found if match}


def reported(output: str) -> dict[str, set[Remark]]:
    """Read mypy's lines by the name of the file that they are about."""
    remarks: dict[str, set[Remark]] = defaultdict(set)
    for name, line, kind, text in re.findall(r"([\w-]+)\.py:(\d+): (error|note): (.+)", output):
        code, revealed = re.search(r"\[([\w-]+)\]$", text), re.search(r'Revealed type is "(.+)"', text)
        if kind == "error":
            remarks[name].add(Remark(int(line), code[1] if code else text))
        elif revealed:
            remarks[name].add(Remark(int(line), _short(revealed[1])))
    return remarks


def _short(revealed: str) -> str:
    """Leave out the modules, which differ from one version of mypy to the next."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)|\?(?=$|[\],])", "", revealed)


def _file(name: str) -> str:
    return re.sub(r"\W", "_", name)


@pytest.fixture(scope="module")
def remarks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Remark]]:
    """What mypy says about all examples, in one run with this project's own settings."""
    folder = tmp_path_factory.mktemp("examples")
    files = [folder / f"{_file(name)}.py" for name in EXAMPLES]
    for file, example in zip(files, EXAMPLES.values(), strict=True):
        file.write_text(written(example), encoding="utf-8")
    options = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / 'build' / 'mypy-examples'}"]
    output, errors, _ = api.run([*options, "--show-error-codes", "--no-pretty", *map(str, files)])
    assert errors == ""
    return reported(output)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_type_checker_knows_that(name: str, remarks: dict[str, set[Remark]]) -> None:
    assert remarks[_file(name)] == expected(written(EXAMPLES[name]))
