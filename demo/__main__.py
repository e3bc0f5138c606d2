"""Watch a shop survive a bad minute. Exit code 0 means that every promise was kept.

Everything runs on this machine, in a temporary folder, for about a minute.
"""

import argparse
import asyncio
import io
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from demo.checks import exit_code
from demo.processes import DemoError
from demo.screen import WIDEST, Screen
from demo.story import KILL_AT, Story

FEWEST, MOST = 50, 1_500
"""With fewer jobs some of the provider's faults would not occur; with more they would not end in time."""


def main() -> int:
    """Run the demo and return its exit code; the files of a run that broke a promise are kept."""
    jobs = _options().jobs
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    console.width = min(console.width, WIDEST)
    screen = Screen(console)
    screen.title(
        "Holdfast: a bad minute",
        f"{jobs:,} jobs call a provider that fails, their worker is killed {len(KILL_AT)} times, some fail for good "
        "and are repaired, and a provider goes down altogether.",
    )
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    code = 1
    try:
        code = asyncio.run(_run(screen, folder, jobs=jobs))
    except DemoError as error:
        screen.end(f"The demo could not continue. {error}", style="red")
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = 130
        screen.end("Stopped. All processes of the demo have ended.")
    finally:
        if code == 1:
            screen.end(f"The database and the logs are kept in {folder}.")
        else:
            shutil.rmtree(folder)
    return code


async def _run(screen: Screen, folder: Path, *, jobs: int) -> int:
    loop, story = asyncio.get_running_loop(), asyncio.current_task()
    assert story is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, story.cancel)
    found = await Story(screen, folder, jobs=jobs).run()
    code = exit_code(found)
    if code == 0:
        screen.end(f"Every promise was kept, in {screen.seconds:.0f} seconds.", style="bold green")
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--jobs", type=_jobs, default=1_000, metavar="N", help="number of orders")
    return parser.parse_args()


def _jobs(text: str) -> int:
    jobs = int(text)
    if not FEWEST <= jobs <= MOST:
        raise argparse.ArgumentTypeError(f"between {FEWEST} and {MOST}, not {jobs}")
    return jobs


if __name__ == "__main__":
    sys.exit(main())
