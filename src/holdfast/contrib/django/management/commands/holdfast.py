"""`manage.py holdfast …`: Holdfast's own commands, with the project's settings and applications loaded."""

from pathlib import Path

from django.core.management.base import BaseCommand, CommandParser

from holdfast.cli import main
from holdfast.contrib.django.face import the_projects


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Passes on every word that follows; Django itself understands `--settings` and `--pythonpath`.

    A command that is told neither `--app` nor `--url` works on the jobs of the project.
    """

    help = "Run workers, look at jobs, and keep their database in order."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run what comes after `manage.py holdfast`, and leave with its exit code."""
        djangos = CommandParser(add_help=False, allow_abbrev=False)
        djangos.add_argument("--settings")
        djangos.add_argument("--pythonpath")
        words = djangos.parse_known_args(argv[2:])[1]
        main(words, prog_name=f"{Path(argv[0]).name} {argv[1]}", default=the_projects)

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Answer `manage.py help holdfast`."""
        self.run_from_argv([prog_name, subcommand, "--help"])
