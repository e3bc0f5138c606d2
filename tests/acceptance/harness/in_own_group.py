"""Runs a module as `python -m` does, in a process group of its own: it and its children can be killed at once."""

import os
import runpy
import sys


def main() -> None:
    """Run the module that the first argument names, with the other arguments."""
    os.setsid()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
