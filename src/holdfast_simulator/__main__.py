"""Run a simulated provider as a process of its own."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from holdfast_simulator.script import Script
from holdfast_simulator.server import Simulator


def main() -> None:
    """Serve until SIGTERM or SIGINT. Exit code 0 means stopped by a signal, 2 that it could not start."""
    options = _parser().parse_args()
    try:
        script = Script.loads(options.script.read_bytes()) if options.script else Script()
        asyncio.run(_serve(script, port=options.port, log_path=options.log))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"holdfast_simulator: {error}\n")
        sys.exit(2)


async def _serve(script: Script, *, port: int, log_path: Path | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with Simulator(script, port=port, log_path=log_path) as simulator:
        sys.stdout.write(f"listening on {simulator.url}\n")
        sys.stdout.flush()
        await stopping.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast_simulator", description=__doc__)
    parser.add_argument(
        "--port", type=int, default=0, help="port on the loopback interface; 0 takes a free one"
    )
    parser.add_argument("--log", type=Path, help="file to which each call is appended as a line of JSON")
    parser.add_argument("--script", type=Path, help="JSON file that says which calls fail, and how")
    return parser


if __name__ == "__main__":
    main()
