"""How commands about dead letters read their options, and what they report."""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command

from holdfast import Holdfast
from holdfast.cli import app
from holdfast.cli.doctor.checks import Health, Letters, of_archive, of_letters
from holdfast.cli.options.app_loader import DEFAULT_APPLICATION, Target
from holdfast.cli.options.letter_selection import build_selection
from holdfast.cli.process.worker_health import letters_gauge
from holdfast.cli.results import with_job_id
from holdfast.cli.views.dead_letters import COMMANDS
from holdfast.core.dead_letters.letter import NEXT, LetterFilter, LetterState
from holdfast.errors import ConfigError

FEW = Letters(total=12, open=3, pages=0, overdue=False, hooks=1)


def test_letters_that_are_kept_for_lack_of_an_archive_are_a_warning() -> None:
    overdue = FEW._replace(overdue=True)

    assert of_letters(FEW, has_archive=False).health is Health.OK
    assert of_letters(overdue, has_archive=True).health is Health.OK
    check = of_letters(overdue, has_archive=False)
    assert check.health is Health.WARN
    assert "HOLDFAST_ARCHIVE_URL" in check.detail


@pytest.mark.parametrize(("hooks", "is_said"), [(0, True), (1, False), (None, False)])
def test_it_is_said_if_only_the_log_reports_what_should_page_an_operator(
    hooks: int | None, is_said: bool
) -> None:
    check = of_letters(FEW._replace(pages=2, hooks=hooks), has_archive=False)

    assert check.health is Health.OK
    assert ("on_ticket" in check.detail) is is_said


def test_an_archive_that_cannot_be_used_is_a_warning_that_says_what_to_do() -> None:
    assert of_archive(None, can_encrypt=True).health is Health.OK
    unreachable = of_archive("the bucket is not there; make it", can_encrypt=True)
    assert (unreachable.health, unreachable.detail) == (
        Health.WARN,
        "the bucket is not there; make it. Letters that cannot be archived are kept",
    )
    assert "holdfast[archive]" in of_archive(None, can_encrypt=False).detail


@pytest.mark.clause("OBS-2")
def test_letters_are_counted_by_their_state_whatever_their_jobs_are_named() -> None:
    readings = letters_gauge({("grade", "new"): 2, ("charge", "new"): 1, ("charge", "closed"): 4})

    expected = {(state.value,): 0 for state in LetterState} | {("new",): 3, ("closed",): 4}
    assert dict(readings["dead_letters"]) == expected


def test_all_letters_are_meant_only_if_it_is_said_so() -> None:
    with pytest.raises(ConfigError, match="--all"):
        build_selection()

    assert build_selection(everything=True).job_ids == ()


def test_a_command_without_letters_names_each_option_of_a_filter_as_it_is_typed() -> None:
    with pytest.raises(ConfigError) as refusal:
        build_selection()

    groups: Any = get_command(app)
    for name in ("dead", "groups"):
        groups = groups.commands[name]
    options = [option for parameter in groups.params for option in parameter.opts]
    of_a_filter = [option for option in options if option not in ("--limit", "--app", "--url", "--json")]
    assert f"any of {', '.join(of_a_filter[:-1])} or {of_a_filter[-1]}, or --all" in str(refusal.value)


@pytest.mark.parametrize("more", [{"everything": True}, {"name": "grade"}, {"escalated": True}])
def test_ids_and_a_filter_exclude_each_other(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        build_selection(job_ids=["01900000-0000-7000-8000-00000000000a"], **more)


def test_an_id_counts_once_in_whatever_case_it_is_written() -> None:
    written = "01900000-0000-7000-8000-00000000000a"

    assert build_selection(job_ids=[written, written.upper()]).job_ids == (written,)


def test_a_filter_means_letters_that_wait_for_the_step_unless_it_names_others() -> None:
    plain = build_selection(name="grade").with_default_states(LetterState.NEW)
    named = build_selection(state=[LetterState.CLOSED]).with_default_states(LetterState.NEW)

    assert plain.letter_filter.states == (LetterState.NEW,)
    assert named.letter_filter.states == (LetterState.CLOSED,)
    assert named.letter_filter.escalated is None


def test_a_selection_by_ids_is_a_filter_without_states() -> None:
    both = ("01900000-0000-7000-8000-00000000000a", "01900000-0000-7000-8000-00000000000b")

    found = build_selection(job_ids=list(both)).with_default_states(LetterState.NEW).as_filter()

    assert isinstance(found, LetterFilter)
    assert (found.job_ids, found.states) == (both, None)


@pytest.mark.parametrize("state", COMMANDS)
def test_what_to_type_next_is_a_command_that_there_is(state: LetterState) -> None:
    group, name, *words = COMMANDS[state].split()

    command: Any = get_command(app)
    for word in (group, name):
        command = command.commands[word]
    options = {option for param in command.params for option in param.opts}
    required = {
        param.opts[0] for param in command.params if param.required and param.opts[0].startswith("--")
    }
    named = {word for word in words if word.startswith("--")}
    assert named <= options
    assert required <= named


def test_every_state_but_the_last_ones_says_what_to_type_next() -> None:
    assert set(LetterState) - set(COMMANDS) == {LetterState.CLOSED, LetterState.DISCARDED}


@pytest.mark.parametrize(
    ("target", "words", "command_line"),
    [
        (Target("app:hold"), "dead plan ID", "holdfast dead plan ID --app app:hold"),
        (Target(), "dead plan ID", "holdfast dead plan ID --app MODULE:NAME"),
        (Target(url="sqlite:///x.db"), "dead plan ID", "holdfast dead plan ID --app MODULE:NAME"),
        (Target(), "dead restore --list", "holdfast dead restore --list --app MODULE:NAME"),
        (Target(), "dead triage ID", "holdfast dead triage ID"),
        (Target("app:hold"), "dead triage ID", "holdfast dead triage ID --app app:hold"),
        (
            Target(url="sqlite:///a b.db"),
            "dead triage ID",
            "holdfast dead triage ID --url 'sqlite:///a b.db'",
        ),
    ],
)
def test_what_to_type_next_works_on_the_same_store_when_typed(
    target: Target, words: str, command_line: str
) -> None:
    assert target.command_line(words) == command_line


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2@db.example/jobs",
        "postgresql://ada:hun/ter@2@db.example/jobs",
        "postgresql://db.example/jobs?user=ada&password=hunter2",
    ],
)
def test_what_to_type_next_repeats_no_password(url: str) -> None:
    assert Target(url=url).command_line("dead close ID") == "holdfast dead close ID --url …"


def test_what_to_type_next_repeats_an_address_without_a_password() -> None:
    url = "postgresql://ada@db.example:5432/jobs"

    assert Target(url=url).command_line("dead close ID") == f"holdfast dead close ID --url {url}"


def test_a_process_that_has_an_application_need_not_name_it() -> None:
    token = DEFAULT_APPLICATION.set(lambda: Holdfast("sqlite:///x.db"))
    try:
        assert Target().command_line("dead plan ID") == "holdfast dead plan ID"
        assert Target(url="sqlite:///y.db").command_line("dead plan ID").endswith("--app MODULE:NAME")
    finally:
        DEFAULT_APPLICATION.reset(token)


def test_a_line_about_a_job_names_it_once() -> None:
    assert with_job_id("7f", "another worker was quicker") == "job 7f: another worker was quicker"
    assert with_job_id("7f", "job 7f is new") == "job 7f is new"


@pytest.mark.parametrize("state", LetterState)
def test_what_is_next_does_not_repeat_the_state(state: LetterState) -> None:
    assert f"is {state}" not in NEXT[state]
    assert f"was {state}" not in NEXT[state]
