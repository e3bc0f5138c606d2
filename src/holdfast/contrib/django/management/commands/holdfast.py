"""`manage.py holdfast …`: Holdfast's own commands, with the project's settings and applications loaded."""

from pathlib import Path

from django.core.management.base import BaseCommand, CommandParser

from holdfast.cli import main
from holdfast.contrib.django.django_holdfast import project_holdfast


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Passes all arguments on; Django itself handles `--settings` and `--pythonpath`.

    A command without `--app` and `--url` works on the jobs of the project.
    """

    help = "Run workers, inspect jobs, and maintain their database."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command after `manage.py holdfast`, and exit with its code."""
        djangos = CommandParser(add_help=False, allow_abbrev=False)
        djangos.add_argument("--settings")
        djangos.add_argument("--pythonpath")
        arguments = djangos.parse_known_args(argv[2:])[1]
        main(arguments, prog_name=f"{Path(argv[0]).name} {argv[1]}", default=project_holdfast)

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the help for `manage.py help holdfast`."""
        self.run_from_argv([prog_name, subcommand, "--help"])
