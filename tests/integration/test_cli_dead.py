"""`holdfast dead`: real commands beside a real worker, from the first look at a failure to its end."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Status
from holdfast.operations import LetterFilter, LetterState
from tests.integration.cli_process import (
    TIMEOUT,
    a_process,
    a_worker,
    an_application,
    apply_schema,
    holdfast,
    read,
    wait,
)

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.servers import Prepare

NO_SUCH_JOB = "0197f0c4-0000-7000-8000-000000000000"

FAILING = """
from pathlib import Path

from holdfast import Backoff, Holdfast, Permanent

hold = Holdfast(backoff=Backoff.none())
UP = Path(__file__).parent / "up"


class Busy(Exception):
    status_code = 503
    request_id = "req_8aF3"


@hold.stage()
async def fetch(number: int) -> int:
    return number


@hold.stage(attempts=2)
async def ask(number: int) -> int:
    if not UP.exists():
        raise Busy("no answer with key sk-live-abcdefgh12345678901234")
    return number


@hold.job("grade", attempts=2)
async def grade(number: int) -> int:
    return await ask(await fetch(number))


@hold.job("charge", attempts=1)
async def charge(amount: int) -> int:
    if amount < 0:
        raise Permanent("less than nothing")
    return amount
"""


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


@dataclass
class Scene:
    """An application whose jobs fail, and the command line beside it."""

    url: str
    folder: Path
    archive: Path

    @property
    def settings(self) -> dict[str, str]:
        return {
            "DATABASE_URL": self.url,
            "HOLDFAST_WORKER_POLL_SEC": "0.05",
            "HOLDFAST_ARCHIVE_URL": str(self.archive),
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the application."""
        return holdfast("dead", *words, "--app", "app:hold", cwd=self.folder, settings=self.settings)

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    async def failed(self, name: str, *numbers: int) -> list[str]:
        """Submit jobs and have a worker fail them; give their ids, the newest first."""
        async with Holdfast(self.url) as hold:

            @hold.job("charge")
            async def charge(amount: int) -> None: ...

            @hold.job("grade")
            async def grade(number: int) -> None: ...

            submit_many = charge.submit_many if name == "charge" else grade.submit_many
            ids = [job.id for job in await submit_many((number,) for number in numbers)]
            with a_worker(cwd=self.folder, settings=self.settings):
                for job_id in ids:
                    assert (await hold.wait(job_id, timeout=TIMEOUT)).status is Status.FAILED
        return ids[::-1]

    async def states(self) -> dict[str, LetterState]:
        async with Holdfast(self.url) as hold:
            return {
                letter.job_id: letter.state
                for letter in await hold.dead_letters.list(LetterFilter(limit=1_000))
            }

    def plan(self, *words: str) -> str:
        """Take every step up to a plan; return its token."""
        for step in (("triage", "--cause", "transient"), ("remediate", "--evidence", "it is back")):
            assert self.run(*step, *words, "--actor", "ann").returncode == 0
        token = self.json("plan", *words, "--safe", "keyed", "--actor", "ann")["token"]
        assert isinstance(token, str)
        return token


@pytest.fixture
def scene(url: str, tmp_path: Path) -> Scene:
    return Scene(url, an_application(tmp_path, FAILING), tmp_path / "archive")


@pytest.mark.clause("OPS-1")
async def test_letters_are_listed_grouped_and_shown_with_what_to_do_next(scene: Scene) -> None:
    second, first = await scene.failed("grade", 1, 2)
    [charged] = await scene.failed("charge", -1)

    listed = scene.run("list")
    narrowed = scene.run("list", "--stage", "ask", "--limit", "1")
    empty = scene.run("list", "--error-class", "BUG")
    groups = scene.json("groups")
    shown = scene.run("show", second)
    machine = scene.json("show", second.upper())

    assert [line.split("\t")[0] for line in listed.stdout.splitlines()] == [charged, second, first]
    [row] = [line.split("\t") for line in narrowed.stdout.splitlines()]
    assert row[:5] == [second, "grade", "default", "-", "ask"]
    assert row[7:9] == ["new", "no"]
    assert listed.stderr == ""
    assert narrowed.stderr == f"holdfast: 1 shown, there are more: --limit N, or --before {second}\n"
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "holdfast: no dead letters\n")
    assert [(group["names"], group["letters"], group["open"]) for group in groups] == [
        (["charge"], 1, 1),
        (["grade"], 2, 2),
    ]
    lines = shown.stdout.splitlines()
    for line in (
        "stage\task",
        "request_id\treq_8aF3",
        "upstream_status\t503",
        "fetch\tdone\t1",
        "ask\tfailed\t2",
    ):
        assert line in lines
    assert lines[-1] == (
        f"  holdfast dead triage {second} --cause transient|data|configuration|code --actor WHO --app app:hold"
    )
    assert "sk-live" not in shown.stdout + listed.stdout + json.dumps(machine)
    assert (machine["state"], machine["next"]["command"]) == ("new", lines[-1].strip())
    assert machine["failure"]["stack"]


@pytest.mark.clause("OPS-1")
async def test_many_letters_are_triaged_by_a_filter_after_a_look(scene: Scene) -> None:
    graded = await scene.failed("grade", 1, 2)
    [charged] = await scene.failed("charge", -1)
    words = ("triage", "--name", "grade", "--cause", "transient", "--actor", "ann")

    look = scene.run(*words, "--dry-run")
    between = set((await scene.states()).values())
    done = scene.run(*words)
    again = scene.run(*words)
    planned = scene.run("plan", "--name", "absent", "--safe", "keyed", "--actor", "ann")
    every = scene.json(*words, "--state", "triaged", "--dry-run")

    assert (look.stdout, look.stderr) == ("", "holdfast: 2 would be triaged\n")
    assert [answer["id"] for answer in every] == graded
    assert between == {LetterState.NEW}
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "holdfast: 2 triaged\n")
    assert await scene.states() == dict.fromkeys(graded, LetterState.TRIAGED) | {charged: LetterState.NEW}
    # Without --state a filter means those that wait for the step.
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr == "holdfast: no dead letter matches the filter; nothing was changed\n"
    assert (planned.returncode, planned.stdout, planned.stderr) == (0, "", again.stderr)


async def test_letters_that_do_not_allow_a_step_are_named_and_the_others_take_it(scene: Scene) -> None:
    second, first = await scene.failed("charge", -1, -2)
    scene.run("triage", first, "--cause", "data", "--actor", "ann")
    words = ("--evidence", "asked", "--actor", "ann")

    some = scene.run("remediate", second, NO_SUCH_JOB, first, *words)
    many = scene.run("remediate", "--all", "--state", "new", "--state", "remediated", *words)

    assert (some.returncode, some.stdout) == (1, f"{first}\tremediated\n")
    assert some.stderr.splitlines() == [
        f"holdfast: the dead letter of job {second} is new, so it cannot be remediated; "
        "triage it first: say what the cause is",
        f"holdfast: there is no dead letter of job {NO_SUCH_JOB}; "
        "it may be archived: holdfast dead restore --list --app app:hold",
    ]
    assert (many.returncode, many.stdout) == (1, "")
    count, refused = many.stderr.splitlines()
    assert count == "holdfast: 1 remediated, 1 refused"
    assert second in refused


@pytest.mark.parametrize(
    "words", [("--correct", 'to={"a":"hunter2","a":1}'), ("--correct-file", "twice.json")]
)
def test_a_correction_that_says_two_things_at_once_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "twice.json").write_text('{"a": 1, "b": [], "a": "hunter2"}', encoding="utf-8")

    done = holdfast(
        *("dead", "remediate", NO_SUCH_JOB, "--evidence", "x", "--actor", "ann"), *words, cwd=tmp_path
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "the key 'a' twice" in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("triage", "--cause", "code", "--actor", "ann"),
        ("discard", "--reason", "old", "--actor", "ann"),
        ("triage", NO_SUCH_JOB, "--all", "--cause", "code", "--actor", "ann"),
        ("triage", NO_SUCH_JOB, "--cause", "code", "--actor", " "),
        ("triage", NO_SUCH_JOB, "--cause", "weather", "--actor", "ann"),
        ("close", NO_SUCH_JOB, "--notes", " ", "--actor", "ann"),
        ("plan", "--all", "--safe", "x", "--actor", "ann", "--pace", "quickly"),
        ("plan", "--all", "--safe", " ", "--actor", "ann", "--app", "app:hold"),
        ("list", "--error-class", "WEATHER"),
        ("remediate", "--all", "--evidence", "x", "--actor", "ann", "--correct", "amount=1"),
        ("remediate", NO_SUCH_JOB, "--evidence", "x", "--actor", "ann", "--correct", "amount=hunter2"),
        ("remediate", NO_SUCH_JOB, "--evidence", "x", "--actor", "ann", "--correct-file", "absent.json"),
        ("restore",),
        ("restore", "--limit", "3"),
        ("restore", NO_SUCH_JOB, "--name", "charge"),
        ("restore", NO_SUCH_JOB, "--all"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_words_that_make_no_sense_are_refused_in_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = holdfast("dead", *words, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("plan", NO_SUCH_JOB, "--safe", "x", "--actor", "ann"),
        ("remediate", NO_SUCH_JOB, "--evidence", "x", "--actor", "ann", "--correct", "amount=1"),
        ("archive",),
        ("restore", "--list"),
    ],
    ids=lambda words: words[0],
)
def test_what_needs_the_code_asks_for_the_application(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = holdfast("dead", *words, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("give the application with --app MODULE:NAME\n")


@pytest.mark.clause("OPS-1")
async def test_a_job_takes_every_step_with_corrected_arguments(scene: Scene) -> None:
    [job_id] = await scene.failed("charge", -1)
    (scene.folder / "right.json").write_text('{"amount": 7}', encoding="utf-8")
    by = ("--actor", "ann")

    def took(*words: str) -> str:
        done = scene.run(*words, *by)
        assert done.returncode == 0, done.stderr
        return done.stdout

    took("triage", job_id, "--cause", "data")
    wrong = scene.run("remediate", job_id, "--evidence", "asked", "--correct", 'amount="x"', *by)
    took("remediate", job_id, "--evidence", "asked", "--correct-file", "right.json")
    look = took("plan", job_id, "--safe", "keyed", "--dry-run")
    token = scene.json("plan", job_id, "--safe", "keyed", *by)["token"]
    with a_worker(cwd=scene.folder, settings=scene.settings):
        replayed = scene.run("replay", token, *by)
    closed = took("close", "--plan", token, "--notes", "repaired")

    assert wrong.returncode == 1
    assert "input\tyes\tthe function takes the arguments" in look.splitlines()
    assert "token" not in look
    assert (replayed.returncode, "completed\t1" in replayed.stdout.splitlines()) == (0, True)
    assert replayed.stderr.splitlines()[-1] == "holdfast: done: 1 of 1 replayed, 1 completed, 0 failed again"
    assert closed == ""
    assert (await read(scene.url, job_id)).result == "7"
    assert scene.json("show", job_id)["corrected"] is True


async def test_what_a_corrected_job_was_submitted_with_is_shown_beside_its_arguments(scene: Scene) -> None:
    [job_id] = await scene.failed("charge", -1)
    words = ("jobs", "show", job_id, "--app", "app:hold")

    def jobs_show(*more: str) -> str:
        return holdfast(*words, *more, cwd=scene.folder, settings=scene.settings).stdout

    before = json.loads(jobs_show("--args", "--json"))
    for step in (
        ("triage", "--cause", "data"),
        ("remediate", "--evidence", "asked", "--correct", "amount=7"),
    ):
        assert scene.run(*step, job_id, "--actor", "ann").returncode == 0
    quiet = jobs_show() + jobs_show("--json")
    people, machine = jobs_show("--args").splitlines(), json.loads(jobs_show("--args", "--json"))

    assert "original_args" not in before
    assert "original_args" not in quiet
    [args] = [number for number, line in enumerate(people) if line.startswith("args\t")]
    assert people[args : args + 2] == ['args\t{"amount":7}', 'original_args\t{"amount":-1}']
    assert (machine["args"], machine["original_args"]) == ({"amount": 7}, {"amount": -1})
    assert f"`holdfast {' '.join(words[:3])} --args --app app:hold` shows" in scene.run("show", job_id).stdout


@pytest.mark.parametrize("is_discarded", [True, False])
async def test_a_retry_brings_a_job_back_discarded_or_not_and_closes_its_letter(
    scene: Scene, is_discarded: bool
) -> None:
    [job_id] = await scene.failed("grade", 5)
    if is_discarded:
        assert scene.run("discard", job_id, "--reason", "not needed", "--actor", "ann").returncode == 0
    (scene.folder / "up").touch()

    retried = holdfast("jobs", "retry", job_id, cwd=scene.folder, settings=scene.settings)
    with a_worker(cwd=scene.folder, settings=scene.settings):
        job = await wait(scene.url, job_id)

    assert retried.returncode == 0, retried.stderr
    assert (job.status, job.result) == (Status.COMPLETED, "5")
    shown = scene.run("show", job_id).stdout.splitlines()
    assert {"state\tclosed", "notes\tretried by its owner"} <= set(shown)
    assert "holdfast" not in shown[-1], "nothing is left to type"


@pytest.mark.clause("OPS-1")
async def test_a_replay_whose_canary_fails_is_stopped_and_says_so_by_its_exit_code(scene: Scene) -> None:
    _, first = await scene.failed("grade", 1, 2)
    token = scene.plan("--name", "grade")

    with a_worker(cwd=scene.folder, settings=scene.settings):
        done = scene.run("replay", token, "--actor", "ann")
    again = scene.run("replay", token, "--actor", "ann")
    seen = scene.json("progress", token)

    assert done.returncode == 1
    assert "why\tthe canary failed in the same place as before" in done.stdout.splitlines()
    assert f"  holdfast dead list --plan {token} --state new --app app:hold" in done.stdout.splitlines()
    assert again.returncode == 1
    assert again.stderr.startswith(f"holdfast: plan {token} was stopped")
    assert (seen["phase"], seen["failed_again"], seen["waiting"]) == ("stopped", 1, 1)
    assert (await scene.states())[first] is LetterState.NEW


async def test_a_replay_goes_on_without_the_command_that_watches_it_until_it_is_stopped(scene: Scene) -> None:
    await scene.failed("grade", 1, 2)
    token = scene.plan("--all")

    with a_process(
        *("dead", "replay", token, "--actor", "ann", "--app", "app:hold"),
        cwd=scene.folder,
        settings=scene.settings,
    ) as watching:
        watching.wait_for("canary: 0 of 2 replayed")
        watching.signal(signal.SIGINT)
        code = watching.end()
    going_on = scene.json("progress", token)["phase"]
    stopped = scene.run("stop", token, "--actor", "bob", "--reason", "not now")
    waited = scene.run("progress", token, "--wait")

    assert code == 130
    assert f"plan {token} continues" in watching.output
    assert going_on == "canary"
    assert (stopped.returncode, "why\tby bob: not now" in stopped.stdout.splitlines()) == (0, True)
    assert waited.returncode == 1


async def test_a_plan_leaves_out_what_is_not_ready_and_says_why(scene: Scene) -> None:
    second, first = await scene.failed("charge", -1, -2)
    scene.run("triage", first, "--cause", "data", "--actor", "ann")
    scene.run("remediate", first, "--evidence", "asked", "--actor", "ann")
    words = ("--safe", "keyed", "--actor", "ann")

    both = scene.run("plan", first, second, NO_SUCH_JOB, *words)
    none = scene.run("plan", second, *words)
    absent = scene.run("plan", NO_SUCH_JOB, *words)
    by_filter = scene.run("plan", "--state", "new", *words)

    assert both.returncode == 1
    assert both.stdout.splitlines()[:2] == [
        f"{second}\tno\tit is new; cause and evidence come first",
        f"{first}\tyes\t-",
    ]
    assert "letters\t1" in both.stdout.splitlines()
    assert both.stderr.splitlines() == [
        f"holdfast: there is no dead letter of job {NO_SUCH_JOB}; "
        "it may be archived: holdfast dead restore --list --app app:hold",
        f"holdfast: job {second}: it is new; cause and evidence come first",
        "holdfast: 1 of 2 letters are not ready, and were left as they are",
    ]
    assert (none.returncode, "token" in none.stdout) == (1, False)
    assert none.stderr == f"holdfast: job {second}: it is new; cause and evidence come first\n"
    assert (absent.returncode, absent.stdout, absent.stderr.splitlines()) == (
        1,
        "",
        both.stderr.splitlines()[:1],
    )
    assert (by_filter.returncode, by_filter.stdout) == (1, "")
    assert (
        by_filter.stderr.splitlines()[0]
        == f"holdfast: job {second}: it is new; cause and evidence come first"
    )


@pytest.mark.clause("OPS-1")
async def test_letters_leave_for_the_archive_and_come_back(scene: Scene) -> None:
    second, first = await scene.failed("charge", -1, -2)

    look = scene.run("archive", "--beyond", "1", "--dry-run")
    done = scene.run("archive", "--beyond", "1")
    left = await scene.states()
    held = scene.json("restore", "--list")
    look_back = scene.run("restore", first, "--dry-run")
    back = scene.run("restore", NO_SUCH_JOB, first)
    again = scene.run("restore", first)

    assert (look.stdout, done.stdout) == ("would be archived\t1\n", "archived\t1\n")
    assert set(left) == {second}
    assert [(entry["id"], entry["name"]) for entry in held] == [(first, "charge")]
    assert (look_back.returncode, look_back.stdout) == (0, f"{first}\twould be restored\n")
    assert (back.returncode, back.stdout) == (1, f"{first}\trestored\n")
    assert back.stderr == f"holdfast: the archive has no dead letter of job {NO_SUCH_JOB}\n"
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"holdfast: job {first} is in the database already, and was not restored\n"
    assert set(await scene.states()) == {first, second}


async def test_a_job_that_is_archived_is_shown_with_the_command_that_restores_it(scene: Scene) -> None:
    [job_id] = await scene.failed("charge", -1)
    scene.run("archive", "--beyond", "0")

    def shown(job_id: str) -> subprocess.CompletedProcess[str]:
        words = ("jobs", "show", job_id, "--app", "app:hold")
        return holdfast(*words, cwd=scene.folder, settings=scene.settings)

    archived, unknown = shown(job_id), shown(NO_SUCH_JOB)

    assert (archived.returncode, archived.stdout) == (1, "")
    assert f"it is in the archive: holdfast dead restore {job_id} --app app:hold" in archived.stderr
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "it is not in the archive either" in unknown.stderr


async def test_a_person_who_is_not_named_is_known_by_the_login_name(scene: Scene) -> None:
    [job_id] = await scene.failed("charge", -1)
    words = ("dead", "triage", job_id, "--cause", "data", "--app", "app:hold")

    done = holdfast(*words, cwd=scene.folder, settings=scene.settings | {"LOGNAME": "grace"})

    assert done.returncode == 0, done.stderr
    assert scene.json("show", job_id)["steps"][-1]["actor"] == "grace"


@pytest.mark.clause("OPS-1")
async def test_many_letters_come_back_by_a_filter(scene: Scene) -> None:
    second, first = await scene.failed("charge", -1, -2)
    [graded] = await scene.failed("grade", 1)
    scene.run("archive", "--beyond", "0")

    held = scene.json("restore", "--list", "--name", "charge", "--limit", "1")
    look = scene.run("restore", "--all", "--dry-run")
    left = await scene.states()
    one = scene.run("restore", "--name", "charge", "--limit", "1")
    rest = scene.json("restore", "--fingerprint", held[0]["fingerprint"])
    none = scene.run("restore", "--name", "charge")
    everything = scene.run("restore", "--all")

    assert [entry["name"] for entry in held] == ["charge"]
    assert (look.stderr, left) == ("holdfast: 3 would be restored\n", {})
    assert (one.returncode, one.stdout, one.stderr) == (0, "", "holdfast: 1 restored\n")
    assert [(answer["done"], answer["detail"]) for answer in rest] == [(True, "restored")]
    assert (none.returncode, none.stderr) == (
        0,
        "holdfast: no dead letter matches the filter; nothing was changed\n",
    )
    assert everything.stderr == "holdfast: 1 restored\n"
    assert set(await scene.states()) == {first, second, graded}


async def test_what_cannot_be_archived_is_kept_and_that_is_said(scene: Scene) -> None:
    ids = await scene.failed("charge", -1)
    scene.archive.write_text("a file, and no folder", encoding="utf-8")

    done = scene.run("archive", "--beyond", "0")

    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"holdfast: the archive '{scene.archive}' cannot be used")
    assert list(await scene.states()) == ids


async def test_more_letters_than_fit_a_page_are_counted_while_it_goes_on(tmp_path: Path) -> None:
    scene = Scene(f"sqlite:///{tmp_path}/jobs.db", an_application(tmp_path, FAILING), tmp_path / "archive")
    await scene.failed("charge", *range(-501, 0))

    done = scene.run("discard", "--name", "charge", "--reason", "a test", "--actor", "ann")

    assert done.stderr.splitlines() == [
        "holdfast: 500 of 501 letters",
        "holdfast: 501 of 501 letters",
        "holdfast: 501 discarded",
    ]
    assert set((await scene.states()).values()) == {LetterState.DISCARDED}

    scene.run("archive", "--beyond", "0")
    back = scene.run("restore", "--all")
    assert back.stderr.splitlines() == [
        "holdfast: 500 of 501 letters",
        "holdfast: 501 of 501 letters",
        "holdfast: 501 restored",
    ]
